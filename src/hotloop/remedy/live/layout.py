"""Live form of ``channels_last``: weights once, images at every outermost forward."""

from __future__ import annotations

from typing import Any

from hotloop.remedy.live.form import Form
from hotloop.remedy.live.outermost import around_outermost


class ChannelsLast(Form):
    """Convolutional networks on images (4 dimensions)."""

    switchable = True
    warm_up = 3

    def install(self) -> None:
        """Around the outermost forward."""
        self._laid_out: dict[int, tuple[Any, bool]] = {}
        around_outermost(self, self._begin, self._end, self._leave)

    def off(self) -> None:
        """Weights as torch lays them out by default."""
        super().off()
        for module, convolves in self._laid_out.values():
            if convolves:
                module.to(memory_format=self.torch.contiguous_format)
        self._laid_out.clear()

    def _begin(self, module: Any, args: Any, kwargs: Any) -> Any:
        found = self._laid_out.get(id(module))
        if found is None:
            found = self._laid_out[id(module)] = module, self._lay_out(module)
        if not found[1]:
            return None
        self.took()
        return tuple(map(self._image, args)), {name: self._image(v) for name, v in kwargs.items()}, None

    def _lay_out(self, module: Any) -> bool:
        convolves = any(isinstance(inner, self.torch.nn.Conv2d) for inner in module.modules())
        if convolves:
            module.to(memory_format=self.torch.channels_last)
        elif not self.count:
            self.say("the model has no Conv2d")
        return convolves

    def _image(self, value: Any) -> Any:
        if isinstance(value, self.torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=self.torch.channels_last)
        return value

    def _leave(self, begun: Any) -> None:
        return None

    def _end(self, token: Any, result: Any) -> Any:
        return None
