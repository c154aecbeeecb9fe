"""Optimizers of a backbone run: AdamW, or Muon for matrices with AdamW for all other parameters.

Compared once, with one seed and a learning rate of 2e-3, stopped early: the loss of the text stage
was 1.52 with Muon and 1.77 with AdamW at step 200, 1.24 and 1.48 at step 250. Other rates of AdamW
were not tried.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from trainer.backbone.config import BackboneConfig

# Of the quintic Newton–Schulz iteration, which drives every singular value towards 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Newton–Schulz orthogonalisation: UVᵀ of the SVD USVᵀ, approximately, of the same shape."""
    a, b, c = COEFFICIENTS
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (x.norm() + 1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


class Muon(torch.optim.Optimizer):
    """Muon for matrices (orthogonalised momentum, scaled to the size of an AdamW update), else AdamW.

    torch.optim.Muon iterates in bfloat16, which is ten times slower than fp32 on a CPU.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
    ) -> None:
        groups = [
            {"params": list(matrices), "is_matrix": True},
            {"params": list(others), "is_matrix": False},
        ]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                if group["is_matrix"]:
                    self._step_matrix(parameter, parameter.grad, group["lr"], group["momentum"])
                else:
                    self._step_adam(parameter, parameter.grad, group["lr"])

    def _step_matrix(self, parameter: nn.Parameter, grad: Tensor, lr: float, beta: float) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].lerp_(grad, 1 - beta)
        update = orthogonalise(grad.lerp(momentum, beta))
        parameter.add_(update, alpha=-lr * 0.2 * max(parameter.shape) ** 0.5)

    def _step_adam(self, parameter: nn.Parameter, grad: Tensor, lr: float) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)  # a tensor, so that checkpoints can hold it
            state["mean"], state["square"] = torch.zeros_like(grad), torch.zeros_like(grad)
        state["step"] += 1
        count = state["step"].item()
        mean = state["mean"].lerp_(grad, 0.1)
        square = state["square"].lerp_(grad.square(), 0.02)
        scale = (square / (1 - 0.98**count)).sqrt_().add_(1e-8)
        parameter.addcdiv_(mean / (1 - 0.9**count), scale, value=-lr)


def find_tables(model: nn.Module) -> set[int]:
    """Ids of the embedding weights: 2-dimensional, but looked up by row, so not for Muon."""
    return {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}


def make_optimizer(
    config: BackboneConfig, parameters: list[nn.Parameter], tables: set[int]
) -> torch.optim.Optimizer:
    """New optimizer of a stage."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW(
            parameters,
            lr=config.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=config.weight_decay,
            fused=True,
        )
    matrices = [p for p in parameters if p.ndim == 2 and id(p) not in tables]
    others = [p for p in parameters if p.ndim != 2 or id(p) in tables]
    return Muon(matrices, others, config.learning_rate, config.weight_decay)
