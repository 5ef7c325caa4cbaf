#!/bin/sh
# --num-workers 0 is slow
NW=4
python train.py \
  --lr 0.2 \
  --num-workers $NW
