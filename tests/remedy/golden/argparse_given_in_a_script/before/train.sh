#!/bin/sh
# --num-workers 0 is slow
NW=0
python train.py \
  --lr 0.2 \
  --num-workers $NW
