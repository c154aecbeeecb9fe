"""The core that serving and training share: frozen reasoners, samplers and the one rollout loop.

    import latent

    reasoner = latent.load("coconut-tiny")
    solution = reasoner.solve("Ivan has 88 apples …", budget=32, sampler="gts", seed=7)
    print(solution.answer, solution.confidence, solution.candidates)

Importing this package imports no torch; `load` does.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latent.reasoner import Reasoner

__all__ = ["load"]


def load(model: str, *, device: str = "auto", dtype: str = "auto") -> "Reasoner":
    """Load an embedded reasoner by its name, or a reasoner folder.

    `device` is auto, cpu, cuda or cuda:0; `dtype` is auto (bf16 on CUDA, else fp32), fp32, bf16, fp16
    or fp64.
    """
    from latent.device import resolve_device, resolve_dtype
    from latent.store import load_reasoner
    from latent.zoo import resolve_model

    folder, where = resolve_model(model).resolve(), resolve_device(device)
    return load_reasoner(folder, device=str(where), dtype=resolve_dtype(dtype, where))
