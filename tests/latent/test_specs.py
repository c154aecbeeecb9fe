import pytest

from latent.errors import SpecError
from latent.specs import SamplerSpec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("deterministic", "deterministic"),
        ("gaussian", "gaussian:1.0"),
        ("gaussian:.5", "gaussian:0.5"),
        (" dropout ", "dropout:0.1"),
        ("dropout:0", "dropout:0.0"),
        ("dropout:0.2@residual+embedding", "dropout:0.2@embedding+residual"),
        ("gts", "gts"),
        ("gts:accuracy-only", "gts:accuracy-only"),
        ("gts:./runs/mine", "gts:./runs/mine"),
        ("token:1", "token:1.0"),
    ],
)
def test_a_spec_has_one_canonical_form(text: str, canonical: str) -> None:
    spec = SamplerSpec.parse(text)
    assert str(spec) == canonical
    assert SamplerSpec.parse(canonical) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown sampler"),
        ("magic", "use deterministic, dropout:0.1"),
        ("gts:", "unknown sampler"),
        ("gts:a b", "name one of the model's samplers"),
        ("deterministic:1", "takes no setting"),
        ("dropout:1", "0 ≤ p < 1"),
        ("dropout:-0.1", "0 ≤ p < 1"),
        ("dropout:nan", "0 ≤ p < 1"),
        ("dropout:0.1@nowhere", "dropout sites"),
        ("gaussian:0", "0 < s"),
        ("gaussian:inf", "0 < s"),
        ("gaussian:x", "0 < s"),
        ("token:0", "0.01 ≤ t"),
        ("token:1@residual", "dropout sites"),
    ],
)
def test_a_bad_spec_says_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        SamplerSpec.parse(text)
    assert caught.value.param == "sampler"


@pytest.mark.parametrize(
    ("own", "temperature", "expected"),
    [
        ("gts", 0.5, "gts@0.5"),
        ("gts@auto", 0.5, "gts@0.5"),
        ("gts:accuracy@0.25", 2.0, "gts:accuracy@2.0"),
        ("token:0.7", 0.9, "token:0.9"),
        ("gaussian:0.5", 0.5, "gaussian:0.25"),
        ("dropout:0.1@residual", 2.0, "dropout:0.2@residual"),
    ],
)
def test_a_temperature_scales_the_noise_of_a_sampler(
    own: str, temperature: float, expected: str
) -> None:
    assert str(SamplerSpec.parse(own).at_temperature(temperature)) == expected
