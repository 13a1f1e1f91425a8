#include "experts.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "matrices.hpp"

namespace robustfd {

namespace {

constexpr double CHANGE = 1.0 / 32.0;  // the largest change of H, relative to its inverse, for which the inverse stays

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the arrays of the model do not fit: ") + what);
}

template <class T> bool has_shape(const Array<T>& a, std::initializer_list<Index> shape) {
    if (a.dims() != static_cast<int>(shape.size())) return false;
    int axis = 0;
    for (Index size : shape)
        if (a.shape(axis++) != size) return false;
    return true;
}

Index direction_size(const Experts& e) { return std::max((e.has_exact() ? e.block.shape(1) : 0), e.lam.size()) + 8; }

// Numbers of a feature in `bets`.
Index line_width(const Experts& e) { return 4 * e.bettors() * e.outputs(); }

// Copy the lower triangle of a matrix to the upper one.
void mirror(Matrix<double> a) {
    for (Index i = 0; i < a.rows; ++i)
        for (Index j = 0; j < i; ++j) a(j, i) = a(i, j);
}

}  // namespace

void Experts::check() const {
    const Index size = table.size(), n = rate.size(), outs = share.shape(0), many = centred.size();
    require(size >= 1 && totals.size() == 1 && targets.size() == 1, "table");
    require(has_shape(centre, {CENTRE_ROWS, many}), "centre");
    for (Index k = 0; k < many; ++k)
        require(1 <= centred[k] && centred[k] < size && table[centred[k]].number == k + 1, "centred");
    bool known = true;
    for (const Feature& f : table) known = known && 0 <= f.number && f.number <= many;
    require(known, "number");
    require(linear.size() == n && fast.size() == n && has_shape(share, {outs, n}) && outs >= 1, "share");
    require(earned.size() == n && has_shape(steady, {outs, n}), "earned or steady");
    require(!has_line() || has_shape(bets, {size, 4, bettors() * outs}), "bets");
    require(plain.dims() == 2 && plain.shape(0) == outs && plain.shape(1) % 2 == 0 && count() >= 1, "plain");
    require(has_shape(follow, {outs, 2, FOLLOWERS}) && trace.size() == WINDOWS && targets[0].stride >= 1, "trace");
    const Index turn = targets[0].turn, turns = targets[0].turns;
    require(level.size() == outs && 0 <= turn && turn < turns && turns <= MOST_TURNS, "level");
    // The trace has room for this number of rows, and one more after it is halved.
    const double room = static_cast<double>(WINDOWS) * static_cast<double>(targets[0].stride);
    require(0.0 <= totals[0].rows && totals[0].rows <= room && room < 1e18, "rows");
    const Index wide = padded(outs * count());
    require(has_shape(weights, {size, 2 * wide}), "weights");
    const Index better = n - plain_experts(), lanes = better * outs;
    require(better >= 0 && better % count() == 0, "rate");
    if (has_exact()) {
        const Index memories = past.shape(0), full = padded(size);
        require(memories >= 1 && memories <= 2 && memories <= rungs() && rungs() <= MOST_RUNGS, "memories");
        require(better == rungs() * count(), "ladder");
        require(has_shape(inverse, {rungs(), size, full}) && has_shape(past, {memories, size, size}), "inverse");
        require(has_shape(block, {size, full}) && has_shape(exact_weights, {size, lanes}), "block");
    }
    if (has_sketch()) {
        const Index m = lam.size();
        require(better == count() && m >= 1 && has_shape(u, {size, m}) && diagonal.size() == size, "u");
        require(has_shape(low_weights, {size, lanes}) && has_shape(along, {m, lanes}), "along");
        require(has_shape(sketch, {m, size}) && has_shape(buffer, {2 * (m + 1), size}), "sketch");
        require(filled.size() == 1 && 0 <= filled[0] && filled[0] <= buffer.shape(0), "filled");
    }
    require(better == 0 || has_exact() || has_sketch(), "experts without a Hessian");
}

// Multiply the fast memory by `faded`, add the rows of the block to H, and invert it if it changed enough: if an entry
// of the diagonal of H^-1 H differs from 1 by more than CHANGE.
void Experts::renew_exact(double faded) {
    const Index size = block.shape(0);
    const Matrix<double> recent = block.matrix();
    Array<double> scratch(size, size), more(size, size);
    const Matrix<double> h = scratch.matrix();
    for (Index memory = 0; memory < past.shape(0); ++memory) {
        const Matrix<double> sums = past.plane(memory);
        const double keep = memory == 0 ? 1.0 : faded;
        for (Index i = 0; i < size; ++i)
            for (Index j = 0; j <= i; ++j) sums(i, j) = keep * sums(i, j) + recent(i, j);
        mirror(sums);
    }
    for (Index rung = 0; rung < rungs(); ++rung) {
        const Matrix<double> sums = past.plane(memory_of(rung)), known = inverse.plane(rung);
        double change = 0.0;
        std::copy(sums.data, sums.data + size * size, h.data);
        // A feature that has not occurred has no prior yet.
        for (Index i = 0; i < size; ++i) h(i, i) += table[i].prior > 0.0 ? ladder[rung] * table[i].prior : 1.0;
        for (Index i = 0; i < size; ++i) {
            double product = 0.0;
            for (Index j = 0; j < size; ++j) product += known(i, j) * h(i, j);
            const double off = std::abs(product - 1.0);
            change = off <= change ? change : off;  // keeps NaN
        }
        if (change <= CHANGE) continue;
        if (!matrix_loops().invert(h, more.data())) throw std::runtime_error("The Hessian is not positive definite.");
        for (Index i = 0; i < size; ++i) std::copy_n(h[i], size, known[i]);
    }
    std::fill(block.begin(), block.end(), 0.0);
}

Experts Experts::shared() const {
    Experts same;
    visit([](const char*, auto& array, auto& place) { place = array.shared(); }, *this, same);
    return same;
}

Kept::Kept(Experts& e, Index rows, Span<const std::int32_t> features, bool every) : same_(e.shared()) {
    // The fade is multiplied into all features when it becomes tiny.
    every = every || e.totals[0].fade * std::pow(GAMMA, static_cast<double>(rows)) < 1e-190;
    Experts others = e.shared();
    if (!every) {
        others.table = {};
        others.weights = {};
        others.bets = {};
        std::vector<bool> listed(static_cast<std::size_t>(e.table.size()));
        const auto list = [&](Index j) {
            if (j >= e.table.size() || listed[static_cast<std::size_t>(j)]) return;  // a new one, or known
            listed[static_cast<std::size_t>(j)] = true;
            features_.push_back(j);
        };
        list(0);  // the intercept
        for (std::int32_t j : features) list(static_cast<Index>(j) + 1);
        for (Index j : Span<Index>(e.centred)) list(j);  // these change with every row
        const Index width = e.weights.shape(1), line = line_width(e);
        table_.reserve(features_.size());
        weights_.reserve(features_.size() * static_cast<std::size_t>(width));
        bets_.reserve(features_.size() * static_cast<std::size_t>(line));
        for (Index j : features_) {
            table_.push_back(e.table[j]);
            weights_.insert(weights_.end(), e.weights.data() + j * width, e.weights.data() + (j + 1) * width);
            bets_.insert(bets_.end(), e.bets.data() + j * line, e.bets.data() + (j + 1) * line);
        }
    }
    copies_ = others;  // deep copies
}

void Kept::restore(Experts& e) const {
    e = same_.shared();
    Experts::visit([](const char*, const auto& copy, auto& array) {
        if (copy.size() == array.size()) std::copy(copy.begin(), copy.end(), array.begin());
    }, copies_, e);
    const Index width = e.weights.shape(1), line = line_width(e);
    for (std::size_t k = 0; k < table_.size(); ++k) {
        e.table[features_[k]] = table_[k];
        std::copy_n(weights_.data() + static_cast<Index>(k) * width, width, e.weights.data() + features_[k] * width);
        std::copy_n(bets_.data() + static_cast<Index>(k) * line, line, e.bets.data() + features_[k] * line);
    }
}

// Divide memory among the arrays of a row, or only return how many numbers they need if there is none yet. Every array
// has whole vectors.
Index Scratch::divide(const Experts& e, double* memory) {
    const Index n = experts_, many = outputs_ * n, lanes = outputs_ * bettors_;
    const Index better = outputs_ * (n - e.plain_experts());
    Index size = 0;
    const auto take = [&](auto*& array, Index numbers) {
        array = memory ? reinterpret_cast<std::remove_reference_t<decltype(array)>>(memory + size) : nullptr;
        size += padded(numbers, LONGEST_VECTOR);
    };
    take(work.feature, entries_), take(work.due, entries_), take(work.raw, entries_), take(work.value, entries_);
    take(work.count, entries_), take(work.square, entries_), take(work.moved, entries_);
    take(work.step_slow, entries_), take(work.step_fast, entries_), take(work.sums, e.weights.shape(1));
    take(work.step_flat, entries_), take(work.alpha, lanes), take(work.bet, lanes), take(work.flat, lanes);
    take(work.kappa, n), take(work.chance, n), take(work.total, n);
    for (auto** array : {&work.z, &work.length, &work.chance32, &work.step32}) take(*array, n + LONGEST_VECTOR);
    take(work.margin, many), take(work.step, many), take(work.softmax, many);
    take(work.output, outputs_), take(work.plain, outputs_), take(work.shares, 3 * many);
    for (double*& each : work.better) take(each, better);
    for (double*& each : work.direction) take(each, direction_);
    return size;
}

Scratch::Scratch(const Experts& e, Index entries)
    : entries_(entries + e.centred.size()), outputs_(e.outputs()), experts_(e.experts()),
      bettors_(e.bettors()), direction_(direction_size(e)) {
    memory_ = Array<double>(divide(e, nullptr));
    divide(e, memory_.data());
}

void Scratch::fit(const Experts& e, Index entries) {
    if (entries + e.centred.size() > entries_ || outputs_ != e.outputs() || experts_ != e.experts() ||
        bettors_ != e.bettors() || direction_ != direction_size(e))
        *this = Scratch(e, entries);
}

}  // namespace robustfd
