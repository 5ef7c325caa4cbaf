"""What counts as a step and as an evaluation, for the loops people write."""

from __future__ import annotations

import pytest
from tests.scenarios.sequence import process

from hotloop.measure.measure import measure

EPOCH = "I1 " + "D1 F B O " * 10 + "X1 "
AGAIN = EPOCH.replace("1", "3")
#: Iterators 1 and 3 are of the training loader, 2 and 4 of the other.
SPLITS = {1: 1, 3: 1, 2: 2, 4: 2}

ONE_BATCH_EACH = " ".join(f"I{i} D{i} F B O" for i in range(1, 13))  # a new iterator for every batch
TWO_EACH = " ".join(f"I{i} D{i} F I{i + 50} D{i + 50} F B O" for i in range(1, 13))


def val(iterator: int, batches: int = 3) -> str:
    return f"I{iterator} " + f"D{iterator} E " * batches + f"X{iterator} "


#: name -> (words, loader of each iterator, steps, evaluations)
LOOPS = {
    "plain": (EPOCH, {}, 10, 0),
    "three epochs": (EPOCH + EPOCH.replace("1", "2") + AGAIN, {1: 1, 2: 1, 3: 1}, 30, 0),
    "persistent workers reset one iterator": (EPOCH * 3, {}, 30, 0),
    "one batch an epoch": ("I1 D1 F B O X1 " * 8, {}, 8, 0),
    "next(iter(loader)) each step": (ONE_BATCH_EACH, dict.fromkeys(range(1, 13), 1), 12, 0),
    "next(iter()) of two loaders each step": (TWO_EACH, {i: 1 + i // 50 for i in range(1, 63)}, 12, 0),
    "accumulation": ("I1 " + "D1 F B D1 F B D1 F B O " * 5 + "X1", {}, 15, 0),
    "accumulation ends with a partial round": ("I1 " + "D1 F B D1 F B O " * 5 + "D1 F B X1", {}, 11, 0),
    "gan": ("I1 " + "D1 F1 B O1 F2 F1 B O2 " * 10 + "X1", {}, 10, 0),
    "gan without loader": ("F1 B O1 F2 B O2 " * 10, {}, 10, 0),
    "wgan with loader": ("I1 " + ("D1 F B O1 " * 4 + "D1 F B O1 F B O2 ") * 3 + "X1", {}, 15, 0),
    "another optimizer takes over": ("F B O1 " * 30 + "F B O2 " * 30, {}, 60, 0),
    "one more optimizer from the middle on": ("F B O1 " * 10 + "F B O1 O2 " * 10, {}, 20, 0),
    "several optimizers, one round": ("F B O1 O2 O3", {}, 1, 0),
    "several optimizers": ("F B O1 O2 O3 " * 10, {}, 10, 0),
    "get_batch": ("F B O " * 10, {}, 10, 0),
    "a loop of its own before a loader's": ("F B O " * 20 + EPOCH, {}, 30, 0),
    "a shorter one before it": ("F B O " * 6 + EPOCH, {}, 10, 0),
    "get_batch with estimate_loss": (("E E E " + "F B O " * 10) * 3, {}, 30, 3),
    "get_batch accumulates": ("F B F B F B O " * 6, {}, 6, 0),
    "no optimizer seen": ("I1 " + "D1 F B " * 10 + "X1", {}, 10, 0),
    "no module seen": ("B O " * 10, {}, 10, 0),
    "validation after each epoch": (EPOCH + val(2) + AGAIN + val(4), SPLITS, 20, 2),
    "validation inside the epoch": ("I1 " + ("D1 F B O " * 5 + val(2)) * 3 + "X1", {}, 15, 3),
    "validation on the training loader": (EPOCH + val(2), {1: 1, 2: 1}, 10, 1),
    "validation without eval()": (EPOCH + "I2 D2 N D2 N X2 " + AGAIN, SPLITS, 20, 1),
    "validation with gradients on": (EPOCH + "I2 D2 F D2 F X2 " + AGAIN, SPLITS, 20, 1),
    "validation cut short": (EPOCH + "I2 D2 E D2 E " + AGAIN, SPLITS, 20, 1),
    "validation iterator that persists": ("I1 I2 " + ("D1 F B O " * 5 + "D2 E ") * 4, {}, 20, 4),
    "its like without training loader": ("I2 " + ("F B O " * 6 + "D2 E ") * 4, {}, 24, 4),
    "teacher with gradients on, in each step": ("I1 " + "D1 F7 F B O " * 10 + "X1", {}, 10, 0),
    "rendering in training mode every 5 steps": (("F B O " * 5 + "N N N ") * 4, {}, 20, 4),
    "generation every 5 steps beside a loader": ("I1 " + ("D1 F B O " * 5 + "N N ") * 3 + "X1", {}, 15, 3),
    "generation within the step, every 5": (
        "I1 " + ("D1 F B O " * 4 + "D1 N N F B O ") * 3 + "X1", {}, 15, 3,
    ),
    "score after each update, in training mode": ("I1 " + "D1 F B O N " * 10 + "X1", {}, 10, 10),
    "loss of a test batch with gradients on": ("I1 " + ("D1 F B O " * 5 + "F F ") * 3 + "X1", {}, 15, 3),
    "test pass of one batch": ("I1 " + ("D1 F B O " * 5 + "I2 D2 F ") * 3 + "X1", {1: 1, 2: 2}, 15, 3),
    "test pass of one batch after short epochs": ("I1 D1 F B O X1 I2 D2 E X2 " * 8, {1: 1, 2: 2}, 8, 8),
    "rollout before each five updates": (("N N N " + "F B O " * 5) * 4, {}, 20, 0),
    "teacher beside a batch fetched ahead": ("I1 D1 " + "N7 F D1 B O " * 10, {}, 10, 0),
    "sanity check first": (val(9, 2) + EPOCH, {}, 10, 1),
    "zip of two loaders": ("I1 I2 " + "D1 D2 F B O " * 10 + "X1", {}, 10, 0),
    "two loaders, two backwards, one update": ("I1 I2 " + "D1 F B D2 F B O " * 10 + "X1", {}, 10, 0),
    "two tasks in turn": ("I1 I2 " + "D1 F B O D2 F B O " * 10, {}, 20, 0),
    "infinite loader": ("I1 " + "D1 F B O " * 25, {}, 25, 0),
    "prefetched batch": ("I1 D1 " + "F D1 B O " * 10, {}, 10, 0),
    "batch skipped now and then": ("I1 " + "D1 F B O D1 F B O D1 D1 F B O " * 4 + "X1", {}, 12, 0),
    "pseudo labels": ("I1 " + "D1 E F B O " * 10 + "X1", {}, 10, 0),
    "teacher never trained": ("I1 " + "D1 E7 F B O " * 10 + "X1", {}, 10, 0),
    "closure": ("I1 " + "D1 O{F,B,F,B} " * 10 + "X1", {}, 10, 0),
    "scaler skips": ("I1 " + "D1 F B S D1 F B O " * 5 + "X1", {}, 10, 0),
    "scaler skips without loader": ("F B S F B O " * 5, {}, 10, 0),
    "overfits one batch": ("I1 D1 " + "F B O " * 60, {}, 60, 0),
    "critic updated five times as often": (("F1 B O1 " * 5 + "F2 B O2 ") * 9, {}, 45, 0),
    "several updates per batch": ("I1 " + "D1 F B O F B O F B O " * 8 + "X1", {}, 8, 0),
    "statistics over the data first": ("I5 D5 D5 D5 X5 " + EPOCH, {5: 1, 1: 1}, 10, 0),
    "inference only": ("I1 " + "D1 E " * 10 + "X1", {}, 0, 0),
    "killed in the first step": ("I1 D1 F", {}, 0, 0),
    "killed while the first update was compiled": ("F B F B " + "K " * 9, {}, 0, 0),
    "updates by hand, compiled at first": ("F B K K F B F B F B F B", {}, 5, 0),
    "updates by hand, killed while it compiled anew": ("F B " * 9 + "K K", {}, 9, 0),
    "nothing": ("", {}, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_steps_and_evaluations_are_counted(name):
    words, loaders, num_steps, num_evaluations = LOOPS[name]
    steps = measure(process(words, loaders=loaders))
    assert steps.num_steps == num_steps
    if name != "inference only":
        assert len(steps.evaluations) == num_evaluations


def test_compiling_after_a_training_by_hand_has_ended_takes_no_step_from_it():
    ended = {"exit": [{"note": "exit", "t": 0, "reason": "end"}]}
    assert measure(process("F B F B " + "K " * 9, notes=ended)).num_steps == 2


def test_what_a_closure_does_before_its_backward_is_not_the_optimizers():
    """Lightning trains in one; of L-BFGS the search that follows the first gradient is the optimizer's."""
    steps = measure(process("I1 " + "D1 O{F,B} " * 10 + "X1"))
    assert steps.span_totals["optimizer"] * 1e3 == pytest.approx(10 * 0.2)
    assert steps.span_totals["other"] * 1e3 > 10 * 0.2


def test_step_begins_with_its_batch():
    """What follows the update (a metric, a log) belongs to the step that ends."""
    steps = measure(process("I1 " + "D1 F B O " * 4 + "X1"))
    starts = [1.0 + 1.1 + i * 4 * 1.1 for i in range(4)]
    assert steps.start_s[1:] * 1e3 == pytest.approx(starts[1:])
    assert steps.start_s[0] * 1e3 == pytest.approx(1.0)  # the first iterator's start is in the span
    early = measure(process("I1 " + "C " * 100 + "D1 F B O " * 4 + "X1"))  # but for one made long before
    assert early.start_s[0] * 1e3 == pytest.approx(1.0 + 101 * 1.1)


def test_batches_passed_over_by_a_script_that_resumes_are_start_up():
    plain = measure(process("I1 " + "D1 F B O " * 20 + "X1", loaders={1: 1}))
    resumed = measure(process("I1 " + "D1 " * 40 + "D1 F B O " * 20 + "X1", loaders={1: 1}))
    assert len(resumed.start_s) == 20
    for phase in ("data_wait", "epoch_gap"):
        assert resumed.span_totals[phase] <= plain.span_totals[phase] * 1.01
    assert resumed.totals["startup"] > plain.totals["startup"]
    (use,) = resumed.loaders
    assert use.num_batches == 20
    # A few of them may be what a step takes at the start of a loop that looks ahead.
    ahead = measure(process("I1 D1 D1 " + "D1 F B O " * 20 + "X1", loaders={1: 1}))
    assert ahead.totals["startup"] == pytest.approx(plain.totals["startup"])


def test_evaluation_after_the_last_epoch_counts_where_it_recurs():
    words = EPOCH + val(2) + AGAIN + val(4)
    steps = measure(process(words, loaders=SPLITS))
    assert steps.span_totals["evaluation"] == pytest.approx(steps.totals["evaluation"])
    once = measure(process(EPOCH + val(2)))
    assert once.span_totals["evaluation"] == 0


def test_first_batch_of_an_epoch_that_the_run_ends_in_is_no_evaluation():
    both = "D1 D2 F F B O " * 10
    words = "I1 I2 " + both + "X1 X2 I3 I4 " + "D3 D4 F F B O "
    steps = measure(process(words, loaders=SPLITS))
    assert steps.totals["evaluation"] == 0
    assert steps.num_steps == 11


def test_updates_and_backwards():
    steps = measure(process("I1 " + "D1 F B D1 F B D1 F B O " * 5 + "X1"))
    assert (steps.num_updates, steps.backwards_per_update) == (5, 3.0)
    assert steps.samples.tolist() == [8.0] * 15


def test_updates_of_all_parts_of_a_training_count():
    steps = measure(process("F B O1 " * 30 + "F1 B O2 F2 B O3 " * 20))
    assert (steps.num_steps, steps.num_updates) == (50, 50)


def test_skipped_updates_are_no_updates():
    steps = measure(process("I1 " + "D1 F B S D1 F B O " * 5 + "X1"))
    assert (steps.num_updates, steps.scaler_skips) == (5, 5)
