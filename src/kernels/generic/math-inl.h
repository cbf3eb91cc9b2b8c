// Elementary functions over a vector type V (vec_scalar.h, vec_avx2.h, vec_avx512.h). The
// polynomials are minimax fits made for this file; the bounds beside them are of the fit, in exact
// arithmetic.
#pragma once

#include <cstdint>

namespace octavo {
namespace {

template <typename V>
struct Math {
  using F = typename V::F;

  // e^x within 1.5 ulp; 0 below -104, infinity above 88.73, NaN for NaN.
  static F Exp(F x) {
    x = V::Min(V::Set(89.0f), V::Max(V::Set(-104.0f), x));
    // x = n ln 2 + r, |r| <= ln(2)/2, with ln 2 in two parts so that n times the first is exact.
    const F n = V::RoundEven(V::Mul(x, V::Set(1.44269504f)));
    F r = V::NegMulAdd(n, V::Set(0.693359375f), x);
    r = V::NegMulAdd(n, V::Set(-2.12194440e-4f), r);
    // e^r = 1 + r + r^2 q(r), relative error 3e-9.
    F q = V::Set(0.0013814467f);
    q = V::MulAdd(q, r, V::Set(0.0083687808f));
    q = V::MulAdd(q, r, V::Set(0.0416683927f));
    q = V::MulAdd(q, r, V::Set(0.1666651964f));
    q = V::MulAdd(q, r, V::Set(0.4999999404f));
    const F power = V::Add(V::Set(1.0f), V::MulAdd(V::Mul(r, r), q, r));
    return V::Ldexp(power, n);
  }

  // 1 / (1 + e^-x)
  static F Sigmoid(F x) {
    const F one = V::Set(1.0f);
    return V::Div(one, V::Add(one, Exp(V::Sub(V::Zero(), x))));
  }

  // Absolute error below 1.2e-7.
  static F Erf(F x) {
    // |x| < 1: x p(x^2), relative error 1.1e-9.
    const F s = V::Mul(x, x);
    F p = V::Set(7.8891229e-05f);
    p = V::MulAdd(p, s, V::Set(-0.00080208422f));
    p = V::MulAdd(p, s, V::Set(0.0051895357f));
    p = V::MulAdd(p, s, V::Set(-0.0268544443f));
    p = V::MulAdd(p, s, V::Set(0.1128360033f));
    p = V::MulAdd(p, s, V::Set(-0.3761262596f));
    p = V::MulAdd(p, s, V::Set(1.1283791065f));
    const F small = V::Mul(x, p);
    // 1 <= |x| < 4: 1 - e^(-t q(t)), t q(t) = -ln(erfc(t)), absolute error 2.5e-9; 1 from 4 on.
    const F t = V::Min(V::Set(4.0f), V::Abs(x));
    F q = V::Set(-0.00021018219f);
    q = V::MulAdd(q, t, V::Set(0.0031831181f));
    q = V::MulAdd(q, t, V::Set(-0.0227860883f));
    q = V::MulAdd(q, t, V::Set(0.1050966755f));
    q = V::MulAdd(q, t, V::Set(0.6358463764f));
    q = V::MulAdd(q, t, V::Set(1.1284755468f));
    const F tail = Exp(V::Sub(V::Zero(), V::Mul(t, q)));
    const F large = V::CopySign(V::Sub(V::Set(1.0f), tail), x);
    return V::IfLess(t, V::Set(1.0f), small, large);
  }

  static F Silu(F x) { return V::Mul(x, Sigmoid(x)); }
  static F Gelu(F x) {
    const F half = V::Mul(x, V::Set(0.5f));
    return V::MulAdd(half, Erf(V::Mul(x, V::Set(0.70710678f))), half);
  }
  // 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
  static F GeluTanh(F x) {
    const F cubic = V::MulAdd(V::Mul(V::Mul(x, x), x), V::Set(0.044715f), x);
    return V::Mul(x, Sigmoid(V::Mul(cubic, V::Set(1.59576912f))));
  }
  static F Relu(F x) { return V::Max(V::Zero(), x); }
};

}  // namespace
}  // namespace octavo
