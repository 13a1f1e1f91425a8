#include "newton.hpp"

#include <stdexcept>

#include "eigen.hpp"

namespace robustfd {

namespace {

// For alpha below this times the largest eigenvalue, all eigenvalues need a small relative error.
constexpr double TINY = 1e-12;
constexpr Index NUMBERS = sizeof(Effect) / sizeof(double);

std::variant<DenseBasis, SparseBasis> basis_for(Index d, Index m, Index rows, bool sparse, Index run_rows) {
    if (!sparse) return DenseBasis(d, m, rows);
    const Index later = rows - (m - 1);  // rows of a block after the first
    return SparseBasis(d, m, rows, std::max(rows, later * (run_rows / later)));
}

}  // namespace

Newton::Newton(const PaperSettings& settings, Index d, Index m, Index rows, bool sparse, Index run_rows)
    : settings(settings), m(m), size(rows),
      numbers_{Array<double>(rows * m), Array<double>(rows * rows), Array<double>(rows * rows),
               Array<double>(rows * rows), Array<double>(rows * NUMBERS), Array<double>(m - 1)},
      coef_b_(m * (m - 1)), coef_x_(m * rows), scratch_(rows * (rows + m + 1)),
      basis_(basis_for(d, m, rows, sparse, run_rows)) {
    state.alpha = settings.alpha0;
}

Index Newton::features() const {
    return std::visit([](const auto& basis) { return basis.features(); }, basis_);
}

std::vector<Part> Newton::parts() {
    std::vector<Part> all = {{"products", numbers_.products, {size, m}},   {"gram", numbers_.gram, {size, size}},
                             {"k", numbers_.k, {size, size}},              {"n", numbers_.n, {size, size}},
                             {"rows", numbers_.rows, {size, NUMBERS}},     {"lam", numbers_.lam, {m - 1}}};
    for (Part& part : std::visit([](auto& basis) { return basis.parts(); }, basis_)) all.push_back(std::move(part));
    return all;
}

Block Newton::block() {
    return {settings,
            state,
            size,
            m - 1,
            features(),
            {numbers_.products.data(), size, m},
            {numbers_.gram.data(), size, size},
            {numbers_.k.data(), size, size},
            {numbers_.n.data(), size, size},
            reinterpret_cast<Effect*>(numbers_.rows.data()),
            numbers_.lam.data(),
            scratch_.data()};
}

// ------------------------------------------------------------------------------------------------- learning

Index Newton::learn(const Rows& rows, const Batch& batch, const double*) {
    if (rows.sparse() != (sparse() != nullptr))
        throw std::invalid_argument("rows must be sparse or dense as the first ones");
    Index done = 0;
    while (done < rows.count && !state.overflowed) {
        const Block now = block();
        const Index count = std::min(now.capacity() - state.filled, rows.count - done);
        std::visit([&](auto& basis) { basis.add(now, rows, done, count); }, basis_);
        block_loops().begin_rows(now, state.filled, state.filled + count);
        done += block_loops().step_rows(now, batch.from(done), count);
        if (!state.overflowed && now.is_full() && !end_block()) --done;
    }
    return done;
}

bool Newton::end_block() {
    store();
    const std::optional<Change> change = shrink();
    state.overflowed = !change;
    if (change) std::visit([&](auto& basis) { basis.change(block(), *change); }, basis_);
    return change.has_value();
}

// Shrink and begin a new block; return the change of w and B, or nothing if the numbers overflow.
std::optional<Change> Newton::shrink() {
    const Block now = block();
    const Index filled = state.filled, r = now.r, had = state.shrinks > 0 ? r : 0, stacked = had + filled;
    const Change change{{coef_b_.data(), m, r}, {coef_x_.data(), m, filled}};
    block_loops().collect_steps(now, scratch_.data(), change.coef_b[0], change.coef_x[0]);
    const Index wanted = std::min(r, stacked);
    const Matrix<double> stack(scratch_.data(), stacked, stacked);
    double *c = scratch_.data() + stacked * stacked, *values = c + filled;
    const Matrix<double> vectors(values + stacked, wanted, stacked);
    block_loops().form_stack(now, had, stack, c);
    double largest = 0.0;
    for (Index i = 0; i < stacked; ++i) largest = std::max(largest, stack(i, i));
    // While alpha is small, tiny eigenvalues matter as well. The rank was counted when the rows were added.
    Index rank = state.careful ? std::min(state.rank, stacked) : stacked;
    if (state.alpha <= TINY * largest) {
        for (Index i = 0; i < stacked; ++i)
            for (Index j = 0; j < i; ++j) stack(j, i) = stack(i, j);
        rank = graded_eigenpairs(stack, wanted, rank, values, vectors);
    } else if (!largest_eigenpairs(stack, wanted, values, vectors)) {
        rank = -1;
    }
    if (rank < 0) return std::nullopt;
    const double noise = gram_noise(stacked, values[0]), least = EPS * EPS * values[0];
    const double delta =
        shrink_values({values, static_cast<std::size_t>(rank)}, m, settings.shrunk, noise, least, now.lam);
    block_loops().write_rows(now, values, vectors, c, change);
    state.delta = delta;
    state.delta_sum += delta;
    state.alpha += settings.added * delta;
    state.careful = state.alpha <= SMALL_ALPHA * (now.lam[0] + delta);
    state.rank = state.span = 0;
    for (Index j = 0; j < r; ++j) {
        state.rank += now.lam[j] > 0.0;
        state.span += now.lam[j] > state.alpha;
    }
    if (settings.shrink_first) block_loops().step_after_shrink(now, change);
    state.filled = 0;
    state.shrinks += 1;
    return change;
}

void Newton::collect_steps(double* coef_b, double* coef_x) {
    std::vector<double> scratch(2 * state.filled);  // reading changes nothing
    block_loops().collect_steps(block(), scratch.data(), coef_b, coef_x);
}

void Newton::combine(double of_w, const double* coef_b, Span<const double> coef_x, Span<const std::int32_t> features,
                     double* out) {
    std::visit([&](auto& basis) { basis.combine(of_w, coef_b, coef_x, features, out); }, basis_);
}

void Newton::multiply_weights(double factor) {
    store();
    const Block now = block();
    state.factor *= factor;
    for (Index i = 0; i < state.filled; ++i) now.rows[i].step *= factor;
}

// ------------------------------------------------------------------------------------------------- all rows or none

// Until the block ends, rows are only appended, so that it is enough to reset the counts.
void Newton::begin() {
    commit();
    active_ = true;
    state_before_ = state;
    std::visit([&](auto& basis) { basis.begin(state.filled); }, basis_);
}

// Store the numbers of the block before those of earlier calls change.
void Newton::store() {
    if (active_ && !numbers_before_) numbers_before_ = numbers_;
}

void Newton::commit() {
    active_ = false;
    state.extreme = SAFE;
    numbers_before_.reset();
    std::visit([](auto& basis) { basis.commit(); }, basis_);
}

void Newton::rollback() {
    if (!active_) return;
    if (numbers_before_) numbers_ = std::move(*numbers_before_);
    state = state_before_;
    std::visit([](auto& basis) { basis.rollback(); }, basis_);
    commit();
}

}  // namespace robustfd
