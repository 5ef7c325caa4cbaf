"""How batches come to the training step: a model calibrated from one run, and what it predicts for others."""

from hotloop.model.pipeline import Pipeline, Prediction, Setup
from hotloop.model.predict import gain, predict

__all__ = ["Pipeline", "Prediction", "Setup", "gain", "predict"]
