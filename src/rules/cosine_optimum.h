// The scale with the largest gradient through a softmax over cosine scores. It is in the core and
// not in the theory, because parsing grad_max_cosine(dim=...) solves for it.
#pragma once

namespace isentrope {

// alpha* = argmax alpha (1 - E[e^(2 alpha s)] / (n E[e^(alpha s)]^2)), s the cosine of two random
// directions in d dimensions (Su 2023, "gradient maximisation"). n in [1, 1e18], d in [2, 65536];
// 0 at n = 1. Relative error below 1e-11.
[[nodiscard]] double cosine_optimum(double n, double d);

// The c of alpha* = c ln n by least squares over n = 40, 80, ... 20000 (Su 2023's figure).
[[nodiscard]] double cosine_coefficient(double d);

}  // namespace isentrope
