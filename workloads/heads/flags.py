"""The command line: the project's flags, their defaults by scale, and which of them nothing reads."""

import argparse
import difflib
import sys
from pathlib import Path

HERE = Path(__file__).parent

#: What a variant changes about the project as it was found. ``--ablate NAME`` leaves one of them out.
GUIDE = ("workers", "rare_evaluation", "fewer_images", "amp_flag")
CURE = (
    "byte_cache", "non_blocking", "device_metrics", "cached_features", "camera_batches", "kept_loaders",
    "throttled_viewer", "unscaled_amp", "fused_optimizer",
)  # fmt: skip
PARTS = {"as_found": (), "guide": GUIDE, "cured": GUIDE + CURE}

#: flag -> its default at each scale. ``full`` is the original's.
SCALED = {
    "iterations": (120, 3000, 600_000),
    "interval": (60, 400, 60_000),
    "densify_from_iter": (20, 200, 10_000),
    "densification_interval": (20, 100, 2_000),
    "opacity_reset_interval": (60, 1500, 60_000),
    "sh_interval": (30, 300, 1_000),
    "resolution": (1, 12, 1),
    "vgg_width": (8, 8, 64),
    "dataloader_workers": (2, 2, 8),
    "densify_grad_threshold": (0.0015, 0.001, 0.0002),  # a Gaussian of a small picture has more of it
}
SCALES = ("tiny", "cpu", "full")

COUNTS = {  # flag -> (default, least, what it is); None: see SCALED
    "iterations": (None, 1, "training steps"),
    "interval": (None, 1, "steps between evaluations, checkpoints and PLY files"),
    "resolution": (None, 1, "train at this part of the pictures' size"),
    "sh_degree": (3, 0, "spherical harmonics up to this degree"),
    "sh_interval": (None, 1, "steps until the degree rises by one"),
    "densify_from_iter": (None, 0, "first step that may add or remove Gaussians"),
    "densify_until_iter": (None, 0, "last step that may (default: --iterations)"),
    "densification_interval": (None, 1, "steps between densifications"),
    "opacity_reset_interval": (None, 1, "steps between resets of the opacities"),
    "dataloader_workers": (None, 0, "processes that read pictures"),
    "prefetch_factor": (None, 1, "items each of them reads ahead"),
    "num_vis_img": (None, 1, "pictures an evaluation writes to TensorBoard (as found 10, guide 5)"),
    "cameras_per_step": (None, 1, "cameras of one timestep in a step (default 1; cured 4)"),
    "vgg_width": (None, 1, "channels of the first layer of the perceptual network (VGG19 has 64)"),
    "viewer_fps": (10, 1, "pictures a second for a viewer (cured)"),
    "seed": (0, 0, "seed of data, order and splitting"),
}
NUMBERS = {
    "position_lr_init": (0.005, "learning rate of positions, times the scene's extent"),
    "position_lr_final": (0.00005, "what it falls to, exponentially"),
    "feature_lr": (0.0025, "of colours; a twentieth of it for higher harmonics"),
    "opacity_lr": (0.05, "of opacities"),
    "scaling_lr": (0.017, "of sizes"),
    "rotation_lr": (0.001, "of rotations"),
    "flame_expr_lr": (1e-3, "of the rig's expressions"),
    "flame_pose_lr": (1e-5, "of its joints"),
    "flame_trans_lr": (1e-6, "of its position"),
    "lambda_dssim": (0.2, "weight of 1 - SSIM; L1 has the rest"),
    "lambda_xyz": (0.01, "weight of positions beyond --threshold_xyz of their triangle"),
    "threshold_xyz": (1.0, "see --lambda_xyz"),
    "lambda_scale": (1.0, "weight of sizes beyond --threshold_scale of their triangle"),
    "threshold_scale": (0.6, "see --lambda_scale"),
    "lambda_perceptual": (None, "weight of the perceptual loss, with --use_vgg_loss (default 0.05)"),
    "lambda_temporal": (None, "weight of unsteady rig parameters (default 0.01)"),
    "adaptive_densify_ratio": (None, "eyes, mouth and nose densify at 1/ratio of the threshold (1.5)"),
    "densify_grad_threshold": (None, "mean screen gradient above which a Gaussian is split or cloned"),
    "feature_cache_gb": (2.0, "memory for features of the pictures (cured)"),
}
#: A flag without which another one is read by nothing, and the other's default.
NEEDS = {
    "lambda_perceptual": ("use_vgg_loss", 0.05),
    "lambda_temporal": ("use_temporal_consistency", 0.01),
    "adaptive_densify_ratio": ("use_adaptive_densification", 1.5),
}


def bounded(kind, least):
    def parse(text):
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        return value

    parse.__name__ = kind.__name__  # argparse names it in its message
    return parse


def make_parser():
    parser = argparse.ArgumentParser(
        usage="train.py [--variant as_found|guide|cured] [--scale tiny|cpu|full] [-s DATA] [-m OUT] [flags]",
        description="Train a mesh-bound Gaussian head avatar.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--variant", choices=tuple(PARTS), default="as_found")
    add("--scale", choices=SCALES, default="cpu")
    add("-s", "--source_path", "--data", dest="source_path", help="a data folder (default: made once)")
    add("-m", "--model_path", "--out", dest="model_path", default=str(HERE / "out"), help="results go here")
    for name, short, meaning in (
        ("eval", (), "keep val and test for evaluation; else they are trained on"),
        ("bind_to_mesh", (), "Gaussians follow the rig; else its resting mesh"),
        ("white_background", ("-w",), "composite on white; else on black"),
    ):
        add(*short, f"--{name}", action=argparse.BooleanOptionalAction, default=True, help=meaning)
    for name, (default, least, meaning) in COUNTS.items():
        short = ("-r",) if name == "resolution" else ()
        add(*short, f"--{name}", type=bounded(int, least), default=default, metavar="N", help=meaning)
    for name, (default, meaning) in NUMBERS.items():
        add(f"--{name}", type=bounded(float, 0.0), default=default, metavar="X", help=meaning)
    add("--use_vgg_loss", action="store_true", help="perceptual loss: VGG19's layers, random weights")
    add("--use_adaptive_densification", action="store_true", help="by region of the face")
    add("--use_temporal_consistency", action="store_true", help="steady rig parameters")
    add("--use_amp", action="store_true", help="mixed precision")
    add("--ip", default="127.0.0.1", help="where a viewer may connect")
    add("--port", type=bounded(int, 0), default=6009, help="0: any free one")
    add("--viewer", action="store_true", help="start a viewer that looks on (guide: paused)")
    add(
        "--backend",
        choices=("auto", "torch", "gsplat", "reference"),
        default="auto",
        help="rasterizer (auto: gsplat on an NVIDIA GPU where its kernels are there, else torch)",
    )
    add("--as-upstream", "--as_upstream", action="store_true", help="as_found with the original's 8 workers")
    add("--epochs", type=bounded(int, 1), help="passes over the pictures, instead of --iterations")
    add("--resume", "--start_checkpoint", dest="resume", help="a checkpoint to go on from")
    add("--ablate", action="append", default=[], metavar="NAME", help="leave out one part of the variant")
    add("--dry-run", action="store_true", help="build it, count it, make one update and stop")
    add("--step_log", help="write one JSON object per step to this file")
    add("--tensorboard", action=argparse.BooleanOptionalAction, default=True, help="if it is installed")
    return parser


def parse_args(argv=None):
    parser = make_parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        flag = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(flag, parser._option_string_actions, n=1)
        hint = f"did you mean {near[0]}?" if near else "train.py --help lists all flags"
        parser.error(f"unknown argument {unknown[0]}: {hint}")
    if strange := set(args.ablate) - set(PARTS[args.variant]):
        known = ", ".join(PARTS[args.variant]) or "none"
        parser.error(f"--ablate {strange.pop()}: the parts of {args.variant} are {known}")
    if args.as_upstream and args.variant != "as_found":
        parser.error(f"--as-upstream is as_found with 8 workers, not {args.variant}")
    args.parts = set(PARTS[args.variant]) - set(args.ablate)
    if "byte_cache" not in args.parts:
        args.parts -= {"non_blocking"}  # a module has no page-locked memory to copy from
    args.dead = dead_flags(args, sys.argv[1:] if argv is None else argv)
    fill(args)
    return args


def fill(args):
    """Put in the defaults that depend on scale and variant."""
    if "byte_cache" in args.parts and args.dataloader_workers is None:
        args.dataloader_workers = "auto"  # hotloop.feed.Loader: as many as help, none once all is decoded
    for name, by_scale in SCALED.items():
        if getattr(args, name) is None:
            value = by_scale[SCALES.index(args.scale)]
            setattr(
                args, name, 2 * value if name == "interval" and "rare_evaluation" in args.parts else value
            )
    for name, (needed, default) in NEEDS.items():
        value = getattr(args, name)
        setattr(args, name, (default if value is None else value) if getattr(args, needed) else 0.0)
    args.densify_until_iter = args.densify_until_iter or args.iterations
    if args.cameras_per_step is None:
        args.cameras_per_step = 4 if "camera_batches" in args.parts else 1
    if "workers" not in args.parts:
        args.dataloader_workers = 8 if args.as_upstream else 0
    if "fewer_images" not in args.parts:
        args.num_vis_img = 10
    args.num_vis_img = args.num_vis_img or 5
    args.prefetch_factor = args.prefetch_factor or 2


def dead_flags(args, argv):
    """{flag: why} of the flags that were given and that nothing reads."""
    dead = {
        f"--{name}": f"without --{needed}" for name, (needed, _) in NEEDS.items() if not vars(args)[needed]
    }
    for part, flags in {
        "workers": ("--dataloader_workers", "--prefetch_factor"),
        "fewer_images": ("--num_vis_img",),
        "amp_flag": ("--use_amp",),
        "cached_features": ("--feature_cache_gb",),
        "throttled_viewer": ("--viewer_fps",),
    }.items():
        if part not in args.parts:
            dead.update(dict.fromkeys(flags, f"in {args.variant}"))
    given = {word.partition("=")[0] for word in argv}
    return {flag: why for flag, why in dead.items() if flag in given}
