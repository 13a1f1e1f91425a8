// ADAGRAD and online gradient descent.
#pragma once

#include "row_model.hpp"

namespace robustfd {

// S_i += g_i^2, h_i = sqrt(alpha0 + S_i), w_i -= g_i / h_i (Duchi et al. 2011, as run by Luo et al. 2019), then the
// projection onto the slab in the norm of diag(h). A ball is not supported: its projection multiplies every weight by
// its own factor h_i / (h_i + nu), and nu depends on all columns.
class AdaGrad final : public RowModel {
  public:
    AdaGrad(const PaperSettings& settings, Index d);
    std::vector<Part> parts() override;

  private:
    Learned learn_rows(const Rows& rows, const Batch& batch, const double* normal) override;
    Array<double> w_, squares_;  // the weights and the sums S of squared gradients
};

// w -= rate_t g, then the Euclidean projection (Zinkevich 2003). The ball is the same for every row, so CURRENT and
// NEXT both project onto it after the step. The weights are w = scale v; only the ball uses the scale and the squared
// length.
class GradientDescent final : public RowModel {
  public:
    GradientDescent(const PaperSettings& settings, Index d);
    std::vector<Part> parts() override;

  private:
    Learned learn_rows(const Rows& rows, const Batch& batch, const double* normal) override;
    bool changes_all_features() const override { return settings.domain == Domain::BALL; }  // it rescales all
    Array<double> v_, scalars_;  // scalars: the scale of v, and the squared length of w
};

}  // namespace robustfd
