"""The mean of the weights over the last steps of a stage.

    w̄ = (1/n) Σ_t w_t,  t over the last n steps

A single step ends where the last batches left it; the mean lies in the middle of where training
goes to and fro. The statistics of normalisation layers are averaged like the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from onesigma.training.errors import RecipeError


def averaged_steps(share: float, steps: int) -> int:
    """How many of a stage's last steps are averaged; 0 for none.

    Args:
        share: of the steps, in [0, 1].
        steps: of the stage.
    """
    if not 0 <= share <= 1:
        raise RecipeError(
            f"stages.average is the share of the last steps that is averaged, from 0 to 1, got "
            f"{share}."
        )
    return round(share * steps)


@dataclass(eq=False)
class WeightAverage:
    """The running mean of a module's state; what is not a float is that of the last step.

    Attributes:
        state: the mean so far, by name; empty before the first step.
    """

    state: dict[str, Tensor] = field(default_factory=dict)

    def add(self, module: nn.Module, number: int) -> None:
        """Take the n-th state into the mean: w̄ ← w̄ + (w − w̄) / n.

        Args:
            module: whose weights these are.
            number: n, from 1.
        """
        for name, tensor in module.state_dict().items():
            if number == 1 or not tensor.is_floating_point():
                self.state[name] = tensor.detach().clone()
            else:
                # what comes from a checkpoint is on the CPU
                mean = self.state[name].to(tensor.device)
                self.state[name] = mean.lerp_(tensor.detach(), 1 / number)
