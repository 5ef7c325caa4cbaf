#!/usr/bin/env bash
# The guide's script: its configuration 1, at full scale. What follows is handed on: --scale tiny, --data DIR,
# --options KEY=VALUE.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "${PYTHON:-python}" "$here/train.py" "$here/configs/baseline/lss_swin_nuscenes_optimized.py" \
    --variant guide --work-dir "$here/out/optimized" "$@"
