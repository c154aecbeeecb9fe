"""The core that serving and training share: frozen reasoners, samplers and the one rollout loop.

    import latent

    reasoner = latent.load("coconut-tiny")
    solution = reasoner.solve("Ivan has 88 apples …", budget=32, sampler="gts", seed=7)
    print(solution.answer, solution.confidence, solution.candidates)

Importing this package imports no torch; `load` and `load_panel` do.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latent.reasoner import Reasoner
    from latent.reasoner_panel import ReasonerPanel

__all__ = ["load", "load_panel"]


def load(model: str, *, device: str = "auto", dtype: str = "auto") -> "Reasoner":
    """Load an embedded reasoner by its name, or a reasoner folder.

    `device` is auto, cpu, cuda or cuda:0; `dtype` is auto (bf16 on CUDA; on a CPU int8, or fp32
    for small decoders), fp32, bf16, fp16, fp64 or, on a CPU, int8.
    """
    from latent.device import resolve_device
    from latent.store import load_reasoner
    from latent.zoo import resolve_model

    folder, where = resolve_model(model).resolve(), resolve_device(device)
    return load_reasoner(folder, device=str(where), dtype=dtype)


def load_panel(
    panel: str, *, device: str = "auto", dtype: str = "auto", is_calibrated: bool = True
) -> "ReasonerPanel":
    """Load an embedded panel by its name, or a panel folder, with all of its reasoners.

    With `is_calibrated=False` its calibration is left out, whether it fits or not.
    """
    from latent.reasoner_panel import load_panel_files

    return load_panel_files(panel, device=device, dtype=dtype, is_calibrated=is_calibrated)
