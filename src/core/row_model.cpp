#include "row_model.hpp"

namespace robustfd {

namespace {

double* numbers_of(const Part& part) { return std::get<double*>(part.data); }

Index size_of(const Part& part) {
    Index size = 1;
    for (Index n : part.shape) size *= n;
    return size;
}

}  // namespace

Index RowModel::learn(const Rows& rows, const Batch& batch, const double* normal) {
    store(rows);
    const Learned learned = learn_rows(rows, batch, normal);
    extreme_ = extreme_ || learned.extreme;
    return learned.rows;
}

void RowModel::begin() {
    commit();
    active_ = true;
    seen_before_ = seen;
    for (const Part& part : parts())
        if (!part.by_feature) shared_.put(numbers_of(part), size_of(part));
}

void RowModel::commit() {
    active_ = has_all_ = extreme_ = false;
    shared_.clear();
    of_features_.clear();
    all_.clear();
    features_.clear();
}

void RowModel::store(const Rows& rows) {
    if (!active_ || has_all_) return;
    const Index entries = rows.entries(0, rows.count);
    if (!rows.sparse() || changes_all_features() || static_cast<Index>(features_.size()) + entries >= d)
        return store_all();
    const std::vector<Part> all_parts = parts();
    for (Index e = rows.indptr[0]; e < rows.indptr[rows.count]; ++e) {
        features_.push_back(rows.indices[e]);
        for (const Part& part : all_parts) {
            if (!part.by_feature) continue;
            const Index width = size_of(part) / d;
            of_features_.put(numbers_of(part) + rows.indices[e] * width, width);
        }
    }
}

void RowModel::store_all() {
    if (!active_ || has_all_) return;
    for (const Part& part : parts())
        if (part.by_feature) all_.put(numbers_of(part), size_of(part));
    has_all_ = true;
}

void store_all(RowModel& model) { model.store_all(); }

void RowModel::rollback() {
    if (!active_) return;
    Index shared = 0, all = 0, stride = 0;
    const std::vector<Part> all_parts = parts();
    for (const Part& part : all_parts) {
        if (!part.by_feature) shared = shared_.take(shared, numbers_of(part), size_of(part));
        if (part.by_feature && has_all_) all = all_.take(all, numbers_of(part), size_of(part));
        if (part.by_feature) stride += size_of(part) / d;
    }
    // Backwards, because a feature may have been stored several times, and the first time counts. These features were
    // stored before all of them were.
    for (Index e = static_cast<Index>(features_.size()) - 1; e >= 0; --e) {
        Index place = e * stride;
        for (const Part& part : all_parts) {
            if (!part.by_feature) continue;
            const Index width = size_of(part) / d;
            place = of_features_.take(place, numbers_of(part) + features_[e] * width, width);
        }
    }
    seen = seen_before_;
    commit();
}

}  // namespace robustfd
