#include "first_order.hpp"

#include <stdexcept>

namespace robustfd {

AdaGrad::AdaGrad(const PaperSettings& settings, Index d) : RowModel(settings, d), w_(d), squares_(d) {
    if (settings.domain == Domain::BALL)
        throw std::invalid_argument("AdaGrad cannot project onto a ball, use the slab");
}

std::vector<Part> AdaGrad::parts() {
    return {{"w", w_, {d}, true}, {"squares", squares_, {d}, true}};
}

Learned AdaGrad::learn_rows(const Rows& rows, const Batch& batch, const double*) {
    return first_order().adagrad(settings, rows, batch, w_.data(), squares_.data());
}

GradientDescent::GradientDescent(const PaperSettings& settings, Index d) : RowModel(settings, d), v_(d), scalars_(2) {
    scalars_[0] = 1.0;
}

std::vector<Part> GradientDescent::parts() {
    return {{"v", v_, {d}, true}, {"scalars", scalars_, {2}}};
}

Learned GradientDescent::learn_rows(const Rows& rows, const Batch& batch, const double*) {
    return first_order().gradient_descent(settings, rows, batch, v_, scalars_.data(), &seen);
}

}  // namespace robustfd
