#include "learner.hpp"

#include <math.h>

#include <algorithm>

#include "progress.hpp"

namespace robustfd {

namespace {

constexpr std::size_t SPARE = 1 << 18;  // numbers whose memory is kept between calls

bool are_usable(const double* numbers, Index count) {
    bool usable = true;
    for (Index i = 0; i < count; ++i) usable &= fabs(numbers[i]) <= LARGEST_INPUT;  // false for NaN
    return usable;
}

double* numbers_of(const Part& part) { return std::get<double*>(part.data); }

Index size_of(const Part& part) {
    Index size = 1;
    for (Index n : part.shape) size *= n;
    return size;
}

}  // namespace

bool learn_few(Learner& learner, const Rows& rows, const Batch& batch, const double* normal) {
    if (!are_usable(rows.data, rows.count * rows.width) || !are_usable(batch.y, rows.count)) return false;
    const Progress before = batch.progress[0];
    learner.begin();
    if (learner.learn(rows, batch, normal) == rows.count && learner.extreme() == 0) {
        learner.commit();
        return true;
    }
    learner.rollback();
    RFD_LEVEL::restore(batch.progress, before);
    return false;
}

RowModel::RowModel(Method method, const PaperSettings& settings, Index d, Index m)
    : method(method), settings(settings), d(d), m(m), v_(d), sums_(method == Method::ADAGRAD ? d : m), basis_(d * m),
      c_(m), square_(m * m), scratch_((2 * m + 8) * m) {
    if (method == Method::OJA)
        for (Index j = 0; j < m; ++j) square_[j * m + j] = 1.0;
}

std::vector<Part> RowModel::parts() {
    switch (method) {
        case Method::ADAGRAD: return {{"w", v_, {d}, true}, {"squares", sums_, {d}, true}};
        case Method::DESCENT: return {{"w", v_, {d}, true}};
        case Method::PROJECTION:
            return {{"v", v_, {d}, true}, {"bt", basis_, {d, m}, true}, {"c", c_, {m}}, {"gram", square_, {m, m}}};
        default:
            return {{"v", v_, {d}, true}, {"yt", basis_, {d, m}, true}, {"c", c_, {m}}, {"energy", sums_, {m}},
                    {"f", square_, {m, m}}};
    }
}

Index RowModel::learn(const Rows& rows, const Batch& batch, const double* normal) {
    store(rows);
    const RowArrays model{method, settings, seen, *this, v_.data(), sums_.data(), {basis_.data(), d, m}, c_.data(),
                          {square_.data(), m, m}, scratch_.data()};
    const Learned learned = row_loops().learn(model, rows, batch, normal);
    extreme_ = extreme_ || learned.extreme;
    return learned.rows;
}

void RowModel::begin() {
    commit();
    active_ = true;
    seen_before_ = seen;
    for (const Part& part : parts())
        if (!part.by_feature) before_.insert(before_.end(), numbers_of(part), numbers_of(part) + size_of(part));
}

void RowModel::commit() {
    active_ = has_all_ = extreme_ = false;
    if (before_.capacity() > SPARE) before_ = {};
    before_.clear();
    features_.clear();
}

void RowModel::store(const Rows& rows) {
    if (!active_ || has_all_) return;
    const Index entries = rows.entries(0, rows.count);
    if (!rows.sparse() || static_cast<Index>(features_.size()) + entries >= d) return store_all();
    const std::vector<Part> all_parts = parts();
    for (Index e = rows.indptr[0]; e < rows.indptr[rows.count]; ++e) {
        features_.push_back(rows.indices[e]);
        for (const Part& part : all_parts) {
            if (!part.by_feature) continue;
            const Index width = size_of(part) / d;
            const double* numbers = numbers_of(part) + rows.indices[e] * width;
            before_.insert(before_.end(), numbers, numbers + width);
        }
    }
}

void RowModel::store_all() {
    if (!active_ || has_all_) return;
    for (const Part& part : parts())
        if (part.by_feature) before_.insert(before_.end(), numbers_of(part), numbers_of(part) + size_of(part));
    has_all_ = true;
}

void store_all(RowModel& model) { model.store_all(); }

void RowModel::rollback() {
    if (!active_) return;
    const double* stored = before_.data();
    const auto take = [](const double*& from, double* to, Index count) {
        std::copy_n(from, count, to);
        from += count;
    };
    std::vector<Part> of_features;
    Index stride = 0;
    for (const Part& part : parts()) {
        if (!part.by_feature) {
            take(stored, numbers_of(part), size_of(part));
            continue;
        }
        stride += size_of(part) / d;
        of_features.push_back(part);
    }
    const double* all = stored + static_cast<Index>(features_.size()) * stride;
    if (has_all_)
        for (const Part& part : of_features) take(all, numbers_of(part), size_of(part));
    // Backwards, because a feature may have been stored several times, and the first time counts. These features were
    // stored before all of them were.
    for (Index e = static_cast<Index>(features_.size()) - 1; e >= 0; --e) {
        const double* one = stored + e * stride;
        for (const Part& part : of_features) {
            const Index width = size_of(part) / d;
            take(one, numbers_of(part) + features_[e] * width, width);
        }
    }
    seen = seen_before_;
    commit();
}

}  // namespace robustfd
