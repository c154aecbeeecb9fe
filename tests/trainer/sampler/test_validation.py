from dataclasses import replace

from trainer.sampler.config import SamplerConfig
from trainer.sampler.validation import Validation, best_of, stop_reason


def seen(step: int, pass_at_n: float, confidence: float = 0.8, uniform: float = 0.3) -> Validation:
    return Validation(step, pass_at_n, pass_at_n / 2, 0.4, confidence, uniform)


CONFIG = replace(SamplerConfig(), patience=3)


def test_a_run_that_gets_better_goes_on():
    assert stop_reason([seen(0, 0.6)], CONFIG) is None
    assert stop_reason([seen(0, 0.6), seen(10, 0.7), seen(20, 0.72)], CONFIG) is None


def test_falling_confidence_is_a_collapse():
    reason = stop_reason([seen(0, 0.6), seen(10, 0.7, confidence=0.39)], CONFIG)
    assert reason == "collapse: mean confidence fell from 0.800 to 0.390"


def test_falling_pass_at_n_is_a_collapse_when_it_happens_twice():
    history = [seen(0, 0.6), seen(10, 0.7), seen(20, 0.55)]
    assert stop_reason(history, CONFIG) is None
    reason = stop_reason([*history, seen(30, 0.58)], CONFIG)
    assert reason == "collapse: validation pass@32 fell from 0.700 (step 10) to 0.580"


def test_uniform_groups_leave_no_signal():
    reason = stop_reason([seen(0, 0.6), seen(10, 0.6, uniform=0.96)], CONFIG)
    assert reason == "no signal: 96% of the groups are all right or all wrong"


def test_patience_runs_out():
    history = [seen(0, 0.6), seen(10, 0.7), seen(20, 0.69), seen(30, 0.7), seen(40, 0.68)]
    assert stop_reason(history[:-1], CONFIG) is None
    reason = stop_reason(history, CONFIG)
    assert reason == "no better validation pass@32 than 0.700 (step 10) in 3 validations"


def test_the_best_validation_has_the_highest_pass_at_n_and_comes_first():
    history = [seen(0, 0.6), seen(10, 0.7), seen(20, 0.7)]
    assert best_of(history).step == 10


def test_a_tie_in_pass_at_n_goes_to_the_sampler_that_learned():
    untrained = Validation(0, 0.75, 0.7, mean_at_1=0.3, confidence=0.8, uniform_share=0.3)
    learned = replace(untrained, step=10, pass_at_k=0.65, mean_at_1=0.5)
    assert best_of([untrained, learned, replace(learned, step=20)]).step == 10
