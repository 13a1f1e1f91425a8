#include <algorithm>

#include "blas.hpp"
#include "newton.hpp"

namespace robustfd {

// ------------------------------------------------------------------------------------------------- dense rows

namespace {

// Features that are updated at a time, few enough for their part of the basis to stay in the cache.
constexpr Index STRIP = 256;

}  // namespace

DenseBasis::DenseBasis(Index d, Index m, Index rows)
    : d_(d), q_(m), rows_(rows), basis_(m * d), buffer_(rows * d), strip_(m * std::min(STRIP, d)) {}

std::vector<Part> DenseBasis::parts() {
    return {{"basis", basis_, {q_, d_}}, {"buffer", buffer_, {rows_, d_}}};
}

// The products are computed for a strip of features at a time, so that the data stay in the L1 cache.
void DenseBasis::add(const Block& block, const Rows& x, Index done, Index count) {
    const Index first = block.state.filled, last = first + count;
    block_rows_ = x.data + done * d_;
    if (count < block.capacity()) {  // otherwise x holds the whole block, and the rows need not be copied
        // Rows of an earlier block are stored before those of a new one replace them. Most calls end before that.
        if (active_ && first < filled_before_ && !rows_before_) rows_before_ = buffer_;
        std::copy_n(block_rows_, count * d_, buffer_.data() + first * d_);
        block_rows_ = buffer_.data();
        const Matrix<const double> basis(basis_.data(), q_, d_), rows(buffer_.data(), last, d_);
        if (count == 1 && block_loops().add_thin_row(block, basis, rows)) return;
    }
    const Matrix<double> products(block.products[first], count, q_), gram(block.gram[first], count, last, block.size);
    for (Index start = 0; start < d_; start += STRIP) {
        const Index width = std::min(STRIP, d_ - start);
        const double keep = start == 0 ? 0.0 : 1.0;
        const Matrix<const double> added(block_rows_ + first * d_ + start, count, width, d_);
        gemm(false, true, 1.0, added, {basis_.data() + start, q_, width, d_}, keep, products);
        gemm(false, true, 1.0, added, {block_rows_ + start, last, width, d_}, keep, gram);
    }
}

void DenseBasis::change(const Block&, const Change& change) {
    if (active_ && !basis_before_) basis_before_ = basis_;
    const Index line = std::min(STRIP, d_), count = change.coef_x.cols;
    for (Index start = 0; start < d_; start += STRIP) {
        const Index width = std::min(STRIP, d_ - start);
        const Matrix<double> strip(strip_.data(), q_, width, line);
        gemm(false, false, 1.0, change.coef_b, {basis_.data() + d_ + start, q_ - 1, width, d_}, 0.0, strip);
        gemm(false, false, 1.0, change.coef_x, {block_rows_ + start, count, width, d_}, 1.0, strip);
        for (Index i = 0; i < q_; ++i) {
            const double* source = strip[i];
            double* target = basis_.data() + i * d_ + start;
            for (Index j = 0; j < width; ++j) target[j] = source[j] + (i == 0 ? target[j] : 0.0);
        }
    }
}

void DenseBasis::combine(double of_w, const double* coef_b, Span<const double> coef_x,
                         Span<const std::int32_t> features, double* out) {
    const Index n = static_cast<Index>(coef_x.size());
    std::vector<double> all(d_);
    for (Index j = 0; j < d_; ++j) all[j] = of_w * basis_[j];
    const Matrix<double> target(all.data(), 1, d_);
    gemm(false, false, 1.0, {coef_b, 1, q_ - 1}, {basis_.data() + d_, q_ - 1, d_}, 1.0, target);
    if (n > 0) gemm(false, false, 1.0, {coef_x.data(), 1, n}, {buffer_.data(), n, d_}, 1.0, target);
    if (features.empty()) std::copy_n(all.data(), d_, out);
    for (std::size_t k = 0; k < features.size(); ++k) out[k] = all[features[k]];
}

void DenseBasis::begin(Index filled) {
    commit();
    active_ = true;
    filled_before_ = filled;
}

void DenseBasis::commit() {
    active_ = false;
    basis_before_.reset();
    rows_before_.reset();
}

void DenseBasis::rollback() {
    if (basis_before_) basis_ = std::move(*basis_before_);
    if (rows_before_) buffer_ = std::move(*rows_before_);
    commit();
}

// ------------------------------------------------------------------------------------------------- sparse rows

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

}  // namespace

SparseBasis::SparseBasis(Index d, Index m, Index rows, Index run_rows)
    : d_(d), q_(m), r_(m - 1), run_rows_(run_rows),
      all_{Array<double>(d * m), Array<double>(RUNS * (m - 1) * m), Array<std::uint8_t>(d)}, place_(d),
      reach_((RUNS + 1) * (m - 1) * m), coefficients_((m - 1 + run_rows) * m),
      scratch_((std::max(rows, m - 1) + 1) * (m - 1 + run_rows) + GROUP * m + m) {
    reserve(FIRST_CAPACITY);
    for (Index i = 0; i < r_; ++i) coefficients_[i * q_ + 1 + i] = reach_[i * q_ + 1 + i] = 1.0;
}

std::vector<Part> SparseBasis::parts() {
    return {{"basis", all_.basis, {d_, q_}, true},
            {"age", all_.age, {d_}, true},
            {"history", all_.history, {RUNS, r_, q_}},
            {"coefficients", coefficients_, {r_ + run_rows_, q_}},
            {"feature", run_.feature, {state_.features}},
            {"gathered", run_.gathered, {state_.features, q_}}};
}

Run SparseBasis::run() {
    return {state_,
            d_,
            q_,
            r_,
            {all_.basis.data(), d_, q_},
            all_.age.data(),
            place_.data(),
            all_.history.data(),
            reach_.data(),
            {run_.gathered.data(), run_.gathered.size() / q_, q_},
            run_.feature.data(),
            run_.latest.data(),
            run_.used.data(),
            run_.value.data(),
            run_.row.data(),
            run_.before.data(),
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

// Allocate memory for `entries` more entries, all of new features.
void SparseBasis::reserve(Index entries) {
    const Index pieces = state_.pieces + entries, features = std::min(state_.features + entries, d_);
    grow(run_.value, pieces, PIECE);
    grow(run_.row, pieces, PIECE);
    grow(run_.before, pieces);
    grow(run_.gathered, features, q_);
    for (Array<std::int32_t>* each : {&run_.feature, &run_.latest, &run_.used}) grow(*each, features);
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
    if (before_ && !before_->coefficients) before_->coefficients = coefficients_;
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
    if (before_ && !before_->run) before_->run = run_;
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
    if (before_ && !before_->all) before_->all = all_;
    fill_reach(now, RUNS);
    run_loops().catch_up(now, scratch_.data());
    state_ = {};
}

void SparseBasis::widen(Index d) {
    grow(all_.basis, d, q_);
    grow(all_.age, d);
    grow(place_, d);
    if (before_ && before_->is_stored.size() > 0) grow(before_->is_stored, d);
    d_ = std::max(d, d_);
}

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

SparseBasis::Entries SparseBasis::entries() const {
    const Index n = state_.entries;
    Entries all{std::vector<double>(n), std::vector<std::int32_t>(n), std::vector<std::int32_t>(n)};
    std::vector<Index> next(state_.rows + 1);  // where the next entry of each row belongs
    std::vector<Index> pieces;
    const auto for_each = [&](auto&& use) {
        for (Index k = 0; k < state_.features; ++k) {
            pieces.clear();
            for (Index piece = run_.latest[k]; piece >= 0; piece = run_.before[piece]) pieces.push_back(piece);
            for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
                const Index size = *piece == run_.latest[k] ? run_.used[k] : PIECE;
                for (Index i = *piece * PIECE; i < *piece * PIECE + size; ++i) use(k, i);
            }
        }
    };
    for_each([&](Index, Index i) { ++next[run_.row[i] + 1]; });
    for (Index i = 0; i < state_.rows; ++i) next[i + 1] += next[i];
    for_each([&](Index k, Index i) {
        const Index place = next[run_.row[i]]++;
        all.value[place] = run_.value[i];
        all.row[place] = run_.row[i];
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
    std::copy_n(gathered, features * q_, run_.gathered.data());
    for (Index k = 0; k < features; ++k) {
        run_.feature[k] = feature[k];
        place_[feature[k]] = static_cast<std::int32_t>(k + 1);
        run_.latest[k] = -1;
        run_.used[k] = static_cast<std::int32_t>(PIECE);
    }
    const Run now = run();
    for (Index e = 0; e < entries; ++e) run_loops().append_entry(now, where[e], value[e], row[e]);
}

// Rows are appended to the run. The end of a block changes the coefficients of the run, and the end of a run its
// features. Once in RUNS runs all features change.
void SparseBasis::begin(Index) {
    before_.emplace();
    before_->d = d_;
    before_->state = state_;
}

void SparseBasis::commit() { before_.reset(); }

// Store the features of the run, which are about to be written back.
void SparseBasis::store_features() {
    if (!before_ || before_->all) return;
    if (before_->is_stored.size() == 0) before_->is_stored = Array<std::uint8_t>(d_);
    for (Index k = 0; k < state_.features; ++k) {
        const std::int32_t feature = run_.feature[k];
        if (before_->is_stored[feature]) continue;
        before_->is_stored[feature] = 1;
        before_->features.push_back(feature);
        before_->ages.push_back(all_.age[feature]);
        const double* numbers = all_.basis.data() + feature * q_;
        before_->numbers.insert(before_->numbers.end(), numbers, numbers + q_);
    }
}

void SparseBasis::rollback() {
    if (!before_) return;
    for (Index k = 0; k < state_.features; ++k) place_[run_.feature[k]] = 0;
    if (before_->all) all_ = std::move(*before_->all);
    for (std::size_t k = 0; k < before_->features.size(); ++k) {  // these were stored before all of them were
        const Index feature = before_->features[k];
        all_.age[feature] = before_->ages[k];
        std::copy_n(before_->numbers.data() + static_cast<Index>(k) * q_, q_, all_.basis.data() + feature * q_);
    }
    if (before_->run) run_ = std::move(*before_->run);
    if (before_->coefficients) coefficients_ = std::move(*before_->coefficients);
    state_ = before_->state;
    state_.reach = 0;  // recomputed from the history when needed
    d_ = before_->d;
    revert_rows();
    commit();
}

// Remove the entries of the rows since `begin` from the features that the run had then.
void SparseBasis::revert_rows() {
    for (Index k = 0; k < state_.features; ++k) {
        std::int32_t &latest = run_.latest[k], &used = run_.used[k];
        place_[run_.feature[k]] = static_cast<std::int32_t>(k + 1);
        while (latest >= 0 && run_.row[latest * PIECE + used - 1] >= state_.rows) {
            if (--used > 0) continue;
            latest = run_.before[latest];
            used = static_cast<std::int32_t>(PIECE);
        }
    }
}

}  // namespace robustfd
