"""Largest and smallest singular value of a map's Jacobian at each example of a batch, without or with the matrix.

Maps are functions of a batch that act on each example by itself, so that the Jacobian of the batch is one block per
example and all blocks are worked on at once.

Shape suffixes: N examples, D numbers of one example's input, E of its output, K iterations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from plainres.seeding import generator

Map = Callable[[torch.Tensor], torch.Tensor]

DENSE = 256  # outputs up to which the whole matrix is cheaper than iterations
ROWS = 64  # of a dense Jacobian in one backward pass
ITERATIONS = 48
EPS = float(torch.finfo(torch.float32).eps)


@dataclass(frozen=True)
class Extremes:
    """Of each example's Jacobian, (N,) float64.

    Attributes:
        top, bottom: the largest and the smallest of its min(D, E) singular values. A bottom one below
            top · max(D, E) · eps of float32 cannot be told from 0, and is 0.
        top_residual, bottom_residual: ‖Jᵀu − σv‖ / top of each, with its vectors u = Jv/σ: a singular value lies within
            top · residual of σ. 0 where the matrix was decomposed whole.

    All are nan where some derivative of the batch is not finite.
    """

    top: torch.Tensor
    bottom: torch.Tensor
    top_residual: torch.Tensor
    bottom_residual: torch.Tensor


def extremes(function: Map, x: torch.Tensor, iterations: int = ITERATIONS) -> Extremes:
    """Extreme singular values of ∂function/∂x at each example of x (N, …).

    Up to ``DENSE`` outputs by the matrix, and exact; beyond by Golub–Kahan iterations, where the top one converges
    first and the bottom one is an upper bound: see the residuals.
    """
    with torch.no_grad():
        num_out = function(x[:1]).numel()
    size = max(x[0].numel(), num_out)
    with sdpa_kernel(SDPBackend.MATH):  # the only attention kernel with second derivatives
        if num_out <= DENSE:
            j_NED = dense(function, x).double().cpu()
            if not j_NED.isfinite().all():
                return _unknown(len(x))
            values_NK = torch.linalg.svdvals(j_NED)
            zeros_N = torch.zeros(len(x), dtype=torch.float64)
            return _with_zeros(values_NK[:, 0], values_NK[:, -1], zeros_N, zeros_N, size)
        return golub_kahan(function, x, min(iterations, x[0].numel(), num_out))


def dense(function: Map, x: torch.Tensor) -> torch.Tensor:
    """The Jacobian of each example, (N, E, D), by backward passes over copies of the batch."""
    n = len(x)
    with torch.no_grad():
        shape = function(x[:1]).shape[1:]
    num_out = math.prod(shape)
    rows = []
    for first in range(0, num_out, ROWS):
        count = min(ROWS, num_out - first)
        copies = x.detach().repeat_interleave(count, dim=0).requires_grad_()
        one_hot = torch.zeros(count, num_out, dtype=x.dtype, device=x.device)
        one_hot[:, first : first + count] = torch.eye(count, dtype=x.dtype, device=x.device)
        with torch.enable_grad():
            y = function(copies)
            (grad,) = torch.autograd.grad(y, copies, one_hot.repeat(n, 1).reshape(n * count, *shape))
        rows.append(grad.reshape(n, count, -1))
    return torch.cat(rows, dim=1)


def golub_kahan(function: Map, x: torch.Tensor, iterations: int) -> Extremes:
    """Golub–Kahan bidiagonalisation (1965) with full reorthogonalisation: J V = U B, B upper bidiagonal (K, K).

    One product with J and one with Jᵀ an iteration. With as many iterations as the smaller of D and E it
    is exact. It starts at a fixed random vector on the smaller side; where it finds an invariant space early (as for an
    identity), it goes on from another one.
    """
    forward, backward = _products(function, x)
    with torch.no_grad():
        num_in, num_out = x[0].numel(), function(x[:1]).numel()
    if num_out < num_in:
        forward, backward = backward, forward
    draws = generator(0, "golub kahan", num_in, num_out)
    n = len(x)
    v = _fresh(torch.zeros(n, 0, min(num_in, num_out)), draws)
    vs, us = v[:, None], torch.zeros(n, 0, max(num_in, num_out))
    b_NKK = torch.zeros(n, iterations, iterations, dtype=torch.float64)
    beta_N = torch.zeros(n)
    for k in range(iterations):
        u, alpha_N = _next(forward(v), us, b_NKK, draws)
        us = torch.cat([us, u[:, None]], dim=1)
        b_NKK[:, k, k] = alpha_N
        v, beta_N = _next(backward(u), vs, b_NKK, draws)
        if k + 1 < iterations:
            b_NKK[:, k, k + 1] = beta_N
            vs = torch.cat([vs, v[:, None]], dim=1)
    if not b_NKK.isfinite().all():
        return _unknown(n)
    p_NKK, values_NK, _ = torch.linalg.svd(b_NKK)
    last_NK = p_NKK[:, -1].abs() * beta_N[:, None]
    scale_N = values_NK[:, 0].clamp(min=1e-300)
    residuals = (last_NK[:, 0] / scale_N, last_NK[:, -1] / scale_N)
    return _with_zeros(values_NK[:, 0], values_NK[:, -1], *residuals, max(num_in, num_out))


def _with_zeros(
    top_N: torch.Tensor,
    bottom_N: torch.Tensor,
    top_residual_N: torch.Tensor,
    bottom_residual_N: torch.Tensor,
    size: int,
) -> Extremes:
    bottom_N = bottom_N.where(bottom_N > top_N * size * EPS, 0.0)
    return Extremes(top_N, bottom_N, top_residual_N, bottom_residual_N)


def _unknown(n: int) -> Extremes:
    nan_N = torch.full((n,), math.nan, dtype=torch.float64)
    return Extremes(nan_N, nan_N, nan_N, nan_N)


def _products(function: Map, x: torch.Tensor) -> tuple[Map, Map]:
    """v (N, D) -> Jv (N, E), and u (N, E) -> Jᵀu (N, D); both in float32 on the CPU."""
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        y = function(leaf)
        # Jᵀu is linear in u, so that its own vector-Jacobian product with v is Jv: torch's forward mode needs no graph,
        # but imports its compiler and lacks some kernels.
        dual = torch.zeros_like(y, requires_grad=True)
        (transposed,) = torch.autograd.grad(y, leaf, dual, create_graph=True)

    def forward(v_ND: torch.Tensor) -> torch.Tensor:
        (product,) = torch.autograd.grad(transposed, dual, v_ND.to(x).reshape(x.shape), retain_graph=True)
        columns_NE: torch.Tensor = product.flatten(1).float().cpu()
        return columns_NE

    def backward(u_NE: torch.Tensor) -> torch.Tensor:
        (grad,) = torch.autograd.grad(y, leaf, u_NE.to(x).reshape(y.shape), retain_graph=True)
        rows_ND: torch.Tensor = grad.flatten(1).float().cpu()
        return rows_ND

    return forward, backward


def _next(
    w: torch.Tensor, basis: torch.Tensor, b_NKK: torch.Tensor, draws: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """The next basis vector (N, D) and its coefficient (N,); a new direction with coefficient 0 where none is left."""
    w = _orthogonal(w, basis)
    norm_N = torch.linalg.vector_norm(w, dim=1)
    scale_N = torch.maximum(b_NKK.abs().amax((1, 2)).float(), norm_N)
    gone_N = norm_N <= scale_N * EPS * w.shape[1]
    if gone_N.any():
        w = torch.where(gone_N[:, None], _fresh(basis, draws), w)
        norm_N = norm_N.where(~gone_N, 0.0)
    return w / torch.linalg.vector_norm(w, dim=1, keepdim=True).clamp(min=1e-30), norm_N


def _orthogonal(w: torch.Tensor, basis: torch.Tensor) -> torch.Tensor:
    for _ in range(2):  # twice is enough (Kahan and Parlett)
        w = w - torch.einsum("nk,nkd->nd", torch.einsum("nkd,nd->nk", basis, w), basis)
    return w


def _fresh(basis: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """A random unit vector orthogonal to (N, K, D); the same draw for all examples."""
    n, _, size = basis.shape
    w = _orthogonal(torch.randn(size, generator=draws).expand(n, size), basis)
    unit: torch.Tensor = w / torch.linalg.vector_norm(w, dim=1, keepdim=True).clamp(min=1e-30)
    return unit
