"""The answer prefix: the tokens that every encoded target begins with. Never a cut of the string."""

from typing import Any

__all__ = ["common_prefix"]

# Digits of every kind, and signs: a tokenizer may join the prefix's last space to any of these.
_PROBES = ("0", "5", "7", "18", "123", "408", "1234", "-6", "-250", "0.5")


def common_prefix(tokenizer: Any, template: str) -> tuple[int, ...]:
    """Give the tokens that a template like "### {}" begins with, whatever number stands in it."""
    encoded = [
        tokenizer.encode(template.format(number), add_special_tokens=False) for number in _PROBES
    ]
    length = 0
    for tokens in zip(*encoded, strict=False):
        if len(set(tokens)) > 1:
            break
        length += 1
    return tuple(encoded[0][:length])
