"""input_norm, shortcut_norm, branch_norm, output_norm, branch_ratio, forward_gain, branch_cosine of every site.

Definitions and arithmetic are those of ``plainres.probes.branch``; here they are fed from hooks. kept_fraction is
the share of samples that a DropPath kept: one is dropped where the module makes 0 of what is not.

Everything is reduced at once, when the later of h and F arrives: many libraries add and activate in place, so a
kept activation would be rewritten. One that was rewritten before that is noticed by its version counter.
"""

import torch
from torch import nn

from plainres.errors import UserError
from plainres.probes.attached.sites import Places, Site
from plainres.probes.attached.taps import Taps
from plainres.probes.branch import put_branch_norms, samples
from plainres.probes.readings import Readings

DROPS = ("DropPath", "StochasticDepth")
# A rounded sum differs from the exact one by half an ulp of each element; accumulated casts are given some more.
ALLOWED_ULPS = 4


class SiteNorms:
    """The per-sample numbers of one site, in one measured step."""

    def __init__(self, site: Site, places: Places, model: nn.Module, taps: Taps) -> None:
        self.site = site
        self._verified = places.total is None
        self._norms: dict[str, torch.Tensor] = {}
        self._kept: dict[str, tuple[torch.Tensor, int]] = {}  # h and F until both are here, with their versions
        self._sum: torch.Tensor | None = None
        self._error: torch.Tensor | None = None
        self._no_output = places.y is None
        taps.listen(places.x, lambda x: self._put("x", x))
        if places.y is not None:
            taps.listen(places.y, lambda y: self._put("y", y))
        self.drops = type(model.get_submodule(places.f.path)).__name__ in DROPS and not places.f.received
        if self.drops:
            taps.listen(places.f._replace(received=True), lambda f: self._put("undropped", f))
        taps.listen(places.h, lambda h: self._keep("h", h))
        taps.listen(places.f, lambda f: self._keep("f", f))
        if places.total is not None:
            taps.listen(places.total, self._verify)

    def begin(self) -> None:
        """Forget the step before."""
        self._norms, self._kept, self._sum = {}, {}, None

    @torch.no_grad()
    def _put(self, name: str, tensor: torch.Tensor) -> None:
        self._norms[name] = torch.linalg.vector_norm(samples(tensor), dim=1)

    @torch.no_grad()
    def _keep(self, name: str, tensor: torch.Tensor) -> None:
        self._kept[name] = (tensor.detach(), tensor._version)
        if len(self._kept) < 2:
            return
        (h, h_version), (f, f_version) = self._kept["h"], self._kept["f"]
        self._kept = {}
        if h._version != h_version or f._version != f_version:
            raise UserError(
                f"site {self.site.label}: branch or shortcut was rewritten in place before both were there; "
                "give as shortcut or branch a later module that puts out what is added"
            )
        if h.shape != f.shape:
            raise UserError(
                f"site {self.site.label}: branch {tuple(f.shape)} and shortcut {tuple(h.shape)} differ in shape, so "
                "one is not added to the other; check their paths"
            )
        h_ND, f_ND = samples(h), samples(f)
        self._norms |= {n: torch.linalg.vector_norm(t, dim=1) for n, t in (("h", h_ND), ("f", f_ND))}
        self._norms["dot"] = (h_ND * f_ND).sum(1)
        if self._no_output:
            self._put("y", h_ND + f_ND)
        if not self._verified:
            self._sum = h + f

    @torch.no_grad()
    def _verify(self, total: torch.Tensor) -> None:
        if self._verified:
            return
        self._error = torch.tensor(torch.inf, device=total.device)
        if self._sum is not None and self._sum.shape == total.shape:
            eps = max(torch.finfo(t.dtype).eps for t in (total, self._sum))
            scale = self._norms["h"].norm() + self._norms["f"].norm()
            # Relative to what is allowed; nothing over nothing is no error.
            distance = (total.float() - self._sum.float()).norm()
            self._error = torch.nan_to_num(distance / (ALLOWED_ULPS * eps * scale), nan=0.0, posinf=torch.inf)
        self._sum = None

    def read(self) -> torch.Tensor:
        """(6, N): ‖x‖, ‖F‖, ‖y‖, ‖h‖, ⟨h, F⟩ and whether F was kept.

        Raises:
            UserError: the total is not shortcut + branch.
        """
        if self._error is not None:
            if self._error.item() > 1:
                raise UserError(
                    f"block {self.site.label}: its output is not shortcut + branch (total '{self.site.total}', branch "
                    f"'{self.site.branch}', shortcut '{self.site.shortcut}'); give other paths as blocks="
                )
            self._verified, self._error = True, None
        kept_N = torch.ones_like(self._norms["f"])
        if self.drops:
            kept_N = ((self._norms["f"] > 0) | (self._norms["undropped"] == 0)).float()
        return torch.stack([*(self._norms[name] for name in ("x", "f", "y", "h", "dot")), kept_N])


def put_site_norms(norms: list[SiteNorms], readings: Readings) -> None:
    """The branch metrics of all sites.

    Raises:
        UserError: a total that is not shortcut + branch, or tensors whose first dimension is not the batch.
    """
    found = [site.read() for site in norms]
    sizes = {site.site.label: values.shape[1] for site, values in zip(norms, found, strict=True)}
    odd = next((label for label, size in sizes.items() if size != found[0].shape[1]), None)
    if odd is not None:
        raise UserError(
            f"site {odd}: {sizes[odd]} samples where {norms[0].site.label} has {found[0].shape[1]}; the first "
            "dimension of every place has to be the batch"
        )
    stacked_B6N = torch.stack(found).cpu().numpy()
    put_branch_norms(readings, stacked_B6N)
    if any(site.drops for site in norms):
        kept = [k.mean() if site.drops else float("nan") for site, k in zip(norms, stacked_B6N[:, 5], strict=True)]
        readings.put("block", "kept_fraction", kept, "this block has none")
