// RP-SON and Oja-SON (Luo et al. 2016): H = B'B + alpha0 I where each row of the data changes every row of B.
//
// B is m x d, and the weights are stored as w = v + B'c (for Oja-SON, Y takes the place of B). When B changes by q a',
// a change of v by -(q'c) a keeps w the same. H^-1 x is a combination of x and the rows of B, so a step changes only c
// and the entries of v at the non-zeros of x. A row costs O(m nnz + m^3), and no operation has length d.
//
// With alpha0 = 0 the steps use the pseudo-inverse of H. Moving w along x_0, the part of a row outside the row space of
// B, then costs nothing in the projection. The domain is a slab or unbounded.
#pragma once

#include "row_model.hpp"

namespace robustfd {

// B += r a'/sqrt(m), where a = sqrt(mu + eta_t) g and r are m standard normal numbers.
class RandomProjection final : public RowModel {
  public:
    RandomProjection(const PaperSettings& settings, Index d, Index m);
    std::vector<Part> parts() override;
    const Index m;

  private:
    Learned learn_rows(const Rows& rows, const Batch& batch, const double* normal) override;
    Array<double> v_, bt_, c_, gram_, scratch_;
};

// V = orth(V + (1/t)(V a) a'), Lambda = (1 - 1/t) Lambda + (1/t) (V a)^2, B = sqrt(t Lambda) V, with a as in RP-SON.
// orth orthonormalizes the rows in order. The implementation stores V = F Y with F lower triangular. With h = V a, the
// Gram matrix of V + h a'/t is I + gamma h h'. So orth multiplies F by the inverse of the Cholesky factor of this
// matrix, and Y only changes by F^-1 h a'/t.
class Oja final : public RowModel {
  public:
    Oja(const PaperSettings& settings, Index d, Index m);  // the caller fills Y with orthonormal rows
    std::vector<Part> parts() override;
    const Index m;

  private:
    Learned learn_rows(const Rows& rows, const Batch& batch, const double* normal) override;
    Array<double> v_, yt_, c_, energy_, f_, scratch_;
};

}  // namespace robustfd
