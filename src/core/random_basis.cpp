#include "random_basis.hpp"

#include <stdexcept>

namespace robustfd {

namespace {

void refuse_ball(const PaperSettings& settings) {
    if (settings.domain == Domain::BALL) throw std::invalid_argument("random sketches cannot project onto a ball");
}

}  // namespace

RandomProjection::RandomProjection(const PaperSettings& settings, Index d, Index m)
    : RowModel(settings, d), m(m), v_(d), bt_(d * m), c_(m), gram_(m * m), scratch_((2 * m + 8) * m) {
    refuse_ball(settings);
}

std::vector<Part> RandomProjection::parts() {
    return {{"v", v_, {d}, true},
            {"bt", bt_, {d, m}, true},
            {"c", c_, {m}},
            {"gram", gram_, {m, m}}};
}

Learned RandomProjection::learn_rows(const Rows& rows, const Batch& batch, const double* normal) {
    const ProjectionModel model{settings, seen, *this, v_.data(), {bt_.data(), d, m}, c_.data(), {gram_.data(), m, m},
                                scratch_.data()};
    return random_basis().projection(model, rows, batch, normal);
}

Oja::Oja(const PaperSettings& settings, Index d, Index m)
    : RowModel(settings, d), m(m), v_(d), yt_(d * m), c_(m), energy_(m), f_(m * m), scratch_((m + 8) * m) {
    refuse_ball(settings);
    for (Index j = 0; j < m; ++j) f_[j * m + j] = 1.0;
}

std::vector<Part> Oja::parts() {
    return {{"v", v_, {d}, true},
            {"yt", yt_, {d, m}, true},
            {"c", c_, {m}},
            {"energy", energy_, {m}},
            {"f", f_, {m, m}}};
}

Learned Oja::learn_rows(const Rows& rows, const Batch& batch, const double*) {
    const OjaModel model{settings, seen, *this, v_.data(), {yt_.data(), d, m}, c_.data(), energy_.data(),
                         {f_.data(), m, m}, scratch_.data()};
    return random_basis().oja(model, rows, batch);
}

}  // namespace robustfd
