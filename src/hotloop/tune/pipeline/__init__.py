"""How batches come to the training step: a model calibrated from one run, and what it predicts for others."""

from hotloop.tune.pipeline.calibrate import calibrate
from hotloop.tune.pipeline.pipeline import Pipeline, Prediction, Setup
from hotloop.tune.pipeline.predict import gain, predict

__all__ = ["Pipeline", "Prediction", "Setup", "calibrate", "gain", "predict"]
