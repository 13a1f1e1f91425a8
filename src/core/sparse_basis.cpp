#include "basis.hpp"
#include "blas.hpp"

namespace robustfd {

namespace {

constexpr Index RUN_ENTRIES = 1 << 19;  // non-zeros after which a run ends at the next block
constexpr Index GROUP = 64;             // features that are written back at a time, few enough to stay in the L1 cache
constexpr Index FIRST_CAPACITY = 64;

// Enlarge an array of lines of `width` numbers, so that it has at least `lines` of them.
template <class T> void grow(Array<T>& array, Index lines, Index width = 1) {
    if (lines * width <= array.size()) return;
    Array<T> larger(std::max(lines * width, 2 * array.size()));
    std::copy_n(array.data(), array.size(), larger.data());
    array = std::move(larger);
}

template <class T> void put(std::vector<T>& to, const Array<T>& from, Index count) {
    to.assign(from.data(), from.data() + count);
}

}  // namespace

SparseBasis::SparseBasis(Index d, Index m, Index rows, Index run_rows)
    : d_(d), q_(m), r_(m - 1), run_rows_(run_rows), basis_(d * m), history_(RUNS * (m - 1) * m),
      reach_((RUNS + 1) * (m - 1) * m), gathered_(FIRST_CAPACITY * m), value_(FIRST_CAPACITY * PIECE),
      coefficients_((m - 1 + run_rows) * m),
      scratch_((std::max(rows, m - 1) + 1) * (m - 1 + run_rows) + GROUP * m + m), age_(d), place_(d),
      feature_(FIRST_CAPACITY), latest_(FIRST_CAPACITY), used_(FIRST_CAPACITY), row_(FIRST_CAPACITY * PIECE),
      before_(FIRST_CAPACITY) {
    for (Index i = 0; i < r_; ++i) coefficients_[i * q_ + 1 + i] = reach_[i * q_ + 1 + i] = 1.0;
}

std::vector<Part> SparseBasis::parts() {
    return {{"basis", basis_, {d_, q_}, true},
            {"age", age_, {d_}, true},
            {"history", history_, {RUNS, r_, q_}},
            {"coefficients", coefficients_, {r_ + run_rows_, q_}},
            {"feature", feature_, {state_.features}},
            {"gathered", gathered_, {state_.features, q_}}};
}

Run SparseBasis::run() {
    return {state_,
            d_,
            q_,
            r_,
            {basis_.data(), d_, q_},
            age_.data(),
            place_.data(),
            history_.data(),
            reach_.data(),
            {gathered_.data(), gathered_.size() / q_, q_},
            feature_.data(),
            latest_.data(),
            used_.data(),
            value_.data(),
            row_.data(),
            before_.data(),
            {coefficients_.data(), r_ + run_rows_, q_}};
}

void fill_reach(const Run& run, Index runs) {
    RunState& state = run.state;
    for (Index g = state.reach; g < runs; ++g) {
        const Matrix<double> old = run.change_of(state.number - g - 1), later = run.reach_of(g + 1);
        for (Index i = 0; i < run.r; ++i)
            for (Index j = 0; j < run.q; ++j) later(i, j) = j == 0 ? old(i, 0) : 0.0;
        gemm(false, false, 1.0, {old.data + 1, run.r, run.r, run.q}, run.reach_of(g), 1.0, later);
    }
    state.reach = std::max(state.reach, runs);
}

// ------------------------------------------------------------------------------------------------- learning

// Allocate memory for `entries` more entries, all of new features.
void SparseBasis::reserve(Index entries) {
    const Index pieces = state_.pieces + entries, features = std::min(state_.features + entries, d_);
    grow(value_, pieces, PIECE);
    grow(row_, pieces, PIECE);
    grow(before_, pieces);
    grow(gathered_, features, q_);
    grow(feature_, features);
    grow(latest_, features);
    grow(used_, features);
}

void SparseBasis::add(const Block& block, const Rows& x, Index done, Index count) {
    const Index first = block.state.filled, base = state_.rows - first, have = r_ + base;
    reserve(x.entries(done, done + count));
    const Run now = run();
    run_loops().gather(now, x.indices, x.indptr[done], x.indptr[done + count]);
    const Matrix<double> known(scratch_.data(), count, have);  // products with B at the beginning, and earlier rows
    double* overlaps = scratch_.data() + count * have;
    for (Index i = 0; i < count; ++i) {
        double *products = block.products[first + i], *gram = block.gram[first + i];
        run_loops().append_row(now, SparseRows{x}[done + i], products, overlaps);
        std::copy_n(products + 1, r_, known[i]);
        std::fill_n(products + 1, r_, 0.0);
        std::copy_n(overlaps, base, known[i] + r_);
        std::copy_n(overlaps + base, first + i + 1, gram);
    }
    gemm(false, false, 1.0, known, {coefficients_.data(), have, q_}, 1.0, {block.products[first], count, q_});
}

void SparseBasis::change(const Block& block, const Change& change) {
    const Index count = change.coef_x.cols, have = r_ + state_.rows - count;
    if (kept_.active && !kept_.has_coefficients) {
        kept_.coefficients.put(coefficients_.data(), (r_ + kept_.state.rows) * q_);
        kept_.has_coefficients = true;
    }
    const Matrix<double> c(coefficients_.data(), r_ + run_rows_, q_), old(scratch_.data(), have, r_);
    for (Index i = 0; i < have; ++i) {
        std::copy_n(c[i] + 1, r_, old[i]);
        std::fill_n(c[i] + 1, r_, 0.0);
    }
    gemm(false, true, 1.0, old, change.coef_b, 1.0, {c.data, have, q_});
    for (Index i = 0; i < count; ++i)
        for (Index j = 0; j < q_; ++j) c(have + i, j) = change.coef_x(j, i);
    if (left() < block.capacity() || state_.entries > RUN_ENTRIES) end_run();
}

// Write the features of the run back and begin a new run.
void SparseBasis::end_run() {
    store_run();
    store_features();
    const Run now = run();
    const Matrix<double> c = now.coefficients;
    for (Index first = 0; first < state_.features; first += GROUP) {
        const Index size = std::min(GROUP, state_.features - first);
        const Matrix<double> current(scratch_.data(), size, q_);
        for (Index i = 0; i < size; ++i)
            for (Index j = 0; j < q_; ++j) current(i, j) = j == 0 ? now.gathered(first + i, 0) : 0.0;
        gemm(false, false, 1.0, {now.gathered[first] + 1, size, r_, q_}, {c.data, r_, q_}, 1.0, current);
        run_loops().write_back(now, first, current);
    }
    const Matrix<double> history = now.change_of(state_.number);
    for (Index i = 0; i < r_; ++i)
        for (Index j = 0; j < q_; ++j) {
            history(i, j) = c(i, j);
            c(i, j) = j == 1 + i ? 1.0 : 0.0;
        }
    const Index number = state_.number + 1;
    state_ = {.number = number};
    if (number < RUNS) return;
    store_all_features();
    fill_reach(now, RUNS);
    run_loops().catch_up(now, scratch_.data());
    state_ = {};
}

void SparseBasis::widen(Index d) {
    grow(basis_, d, q_);
    grow(age_, d);
    grow(place_, d);
    if (kept_.is_stored.size() > 0) grow(kept_.is_stored, d);
    d_ = std::max(d, d_);
}

void SparseBasis::multiply_weights(double factor) {
    for (Array<double>* array : {&basis_, &gathered_, &coefficients_, &history_})
        for (Index i = 0; i < array->size(); i += q_) (*array)[i] *= factor;
    state_.reach = 0;  // recomputed from the history when needed
}

// ------------------------------------------------------------------------------------------------- reading

void SparseBasis::combine(double of_w, const double* coef_b, Span<const double> coef_x,
                          Span<const std::int32_t> features, double* out) {
    const Index have = r_ + state_.rows - static_cast<Index>(coef_x.size());
    std::vector<double> coefficients(r_ + state_.rows), current(q_);
    for (Index i = 0; i < have; ++i) {
        const double* c = coefficients_.data() + i * q_;
        coefficients[i] = of_w * c[0];
        for (Index j = 0; j < r_; ++j) coefficients[i] += c[1 + j] * coef_b[j];
    }
    std::copy(coef_x.begin(), coef_x.end(), coefficients.begin() + have);
    fill_reach(run(), state_.number);
    const bool all = features.empty();
    run_loops().read(run(), all ? nullptr : features.data(), all ? d_ : static_cast<Index>(features.size()), of_w,
                     coefficients.data(), current.data(), out);
}

SparseBasis::Entries SparseBasis::entries() {
    const Index n = state_.entries;
    Entries all{std::vector<double>(n), std::vector<std::int32_t>(n), std::vector<std::int32_t>(n)};
    std::vector<Index> next(state_.rows + 1);  // where the next entry of each row belongs
    std::vector<Index> pieces;
    const auto for_each = [&](auto&& use) {
        for (Index k = 0; k < state_.features; ++k) {
            pieces.clear();
            for (Index piece = latest_[k]; piece >= 0; piece = before_[piece]) pieces.push_back(piece);
            for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
                const Index size = *piece == latest_[k] ? used_[k] : PIECE;
                for (Index i = *piece * PIECE; i < *piece * PIECE + size; ++i) use(k, i);
            }
        }
    };
    for_each([&](Index, Index i) { ++next[row_[i] + 1]; });
    for (Index i = 0; i < state_.rows; ++i) next[i + 1] += next[i];
    for_each([&](Index k, Index i) {
        const Index place = next[row_[i]]++;
        all.value[place] = value_[i];
        all.row[place] = row_[i];
        all.where[place] = static_cast<std::int32_t>(k);
    });
    return all;
}

void SparseBasis::restore(Index number, Index rows, Span<const std::int32_t> feature, const double* gathered,
                          Span<const double> value, const std::int32_t* row, const std::int32_t* where) {
    const Index features = static_cast<Index>(feature.size()), entries = static_cast<Index>(value.size());
    state_ = {};
    reserve(std::max(features, entries));
    state_ = {.number = number, .rows = rows, .features = features};
    std::copy_n(gathered, features * q_, gathered_.data());
    for (Index k = 0; k < features; ++k) {
        feature_[k] = feature[k];
        place_[feature[k]] = static_cast<std::int32_t>(k + 1);
        latest_[k] = -1;
        used_[k] = static_cast<std::int32_t>(PIECE);
    }
    const Run now = run();
    for (Index e = 0; e < entries; ++e) run_loops().append_entry(now, where[e], value[e], row[e]);
}

// ------------------------------------------------------------------------------------------------- all rows or none

// Rows are appended to the run. The end of a block changes the coefficients of the run, and the end of a run its
// features. Once in RUNS runs all features change.
void SparseBasis::begin(Index) {
    commit();
    kept_.active = true;
    kept_.d = d_;
    kept_.state = state_;
}

void SparseBasis::commit() {
    if (kept_.active) kept_ = {};
}

void SparseBasis::store_all() {
    if (!kept_.active || kept_.whole) return;
    const auto before = std::make_shared<SparseBasis>(*this);
    before->rollback();
    kept_ = {};
    kept_.whole = before;
    kept_.active = kept_.has_coefficients = kept_.has_run = kept_.has_all = true;
}

void SparseBasis::store_run() {
    if (!kept_.active || kept_.has_run) return;
    kept_.gathered.put(gathered_.data(), state_.features * q_);
    put(kept_.feature, feature_, state_.features);
    put(kept_.latest, latest_, state_.features);
    put(kept_.used, used_, state_.features);
    kept_.value.put(value_.data(), state_.pieces * PIECE);
    put(kept_.row, row_, state_.pieces * PIECE);
    put(kept_.before, before_, state_.pieces);
    kept_.has_run = true;
}

// Store the features of the run, which are about to be written back.
void SparseBasis::store_features() {
    if (!kept_.active || kept_.has_all) return;
    if (kept_.is_stored.size() == 0) kept_.is_stored = Array<std::uint8_t>(d_);
    for (Index k = 0; k < state_.features; ++k) {
        const std::int32_t feature = feature_[k];
        if (kept_.is_stored[feature]) continue;
        kept_.is_stored[feature] = 1;
        kept_.features.push_back(feature);
        kept_.ages.push_back(age_[feature]);
        kept_.rows_of_features.put(basis_.data() + feature * q_, q_);
    }
}

void SparseBasis::store_all_features() {
    if (!kept_.active || kept_.has_all) return;
    kept_.all.put(basis_.data(), d_ * q_);
    kept_.all.put(history_.data(), kept_.state.number * r_ * q_);
    put(kept_.all_ages, age_, d_);
    kept_.has_all = true;
}

void SparseBasis::rollback() {
    if (!kept_.active) return;
    if (kept_.whole) {
        const std::shared_ptr<const SparseBasis> before = kept_.whole;
        *this = SparseBasis(*before);
        return;
    }
    for (Index k = 0; k < state_.features; ++k) place_[feature_[k]] = 0;
    restore_features();
    if (kept_.has_run) {
        kept_.gathered.take(0, gathered_.data(), static_cast<Index>(kept_.feature.size()) * q_);
        kept_.value.take(0, value_.data(), static_cast<Index>(kept_.row.size()));
        std::copy(kept_.feature.begin(), kept_.feature.end(), feature_.begin());
        std::copy(kept_.latest.begin(), kept_.latest.end(), latest_.begin());
        std::copy(kept_.used.begin(), kept_.used.end(), used_.begin());
        std::copy(kept_.row.begin(), kept_.row.end(), row_.begin());
        std::copy(kept_.before.begin(), kept_.before.end(), before_.begin());
    }
    if (kept_.has_coefficients) kept_.coefficients.take(0, coefficients_.data(), (r_ + kept_.state.rows) * q_);
    revert_rows();
    state_ = kept_.state;
    state_.reach = 0;  // recomputed from the history when needed
    d_ = kept_.d;
    commit();
}

void SparseBasis::restore_features() {
    if (kept_.has_all) {
        const Index count = static_cast<Index>(kept_.all_ages.size());
        kept_.all.take(kept_.all.take(0, basis_.data(), count * q_), history_.data(), kept_.state.number * r_ * q_);
        std::copy(kept_.all_ages.begin(), kept_.all_ages.end(), age_.begin());
    }
    for (std::size_t k = 0; k < kept_.features.size(); ++k) {  // these were stored before all of them were
        age_[kept_.features[k]] = kept_.ages[k];
        kept_.rows_of_features.take(static_cast<Index>(k) * q_, basis_.data() + kept_.features[k] * q_, q_);
    }
}

// Remove the entries of the rows since `begin` from the features that the run had then.
void SparseBasis::revert_rows() {
    for (Index k = 0; k < kept_.state.features; ++k) {
        place_[feature_[k]] = static_cast<std::int32_t>(k + 1);
        while (latest_[k] >= 0 && row_[latest_[k] * PIECE + used_[k] - 1] >= kept_.state.rows) {
            if (--used_[k] > 0) continue;
            latest_[k] = before_[latest_[k]];
            used_[k] = static_cast<std::int32_t>(PIECE);
        }
    }
}

}  // namespace robustfd
