#include "newton.hpp"

#include <stdexcept>

#include "eigen.hpp"

namespace robustfd {

namespace {

constexpr double TINY =
    1e-12;  // for alpha below this times the largest eigenvalue, all eigenvalues need a small relative error
constexpr Index NUMBERS = sizeof(Effect) / sizeof(double);

std::unique_ptr<Basis> basis_for(Index d, Index m, Index rows, bool sparse, Index run_rows) {
    if (!sparse) return std::make_unique<DenseBasis>(d, m, rows);
    const Index later = rows - (m - 1);  // rows of a block after the first
    return std::make_unique<SparseBasis>(d, m, rows, std::max(rows, later * (run_rows / later)));
}

}  // namespace

Newton::Newton(const PaperSettings& settings, Index d, Index m, Index rows, bool sparse, Index run_rows)
    : settings(settings), m(m), size(rows), products_(rows * m), gram_(rows * rows), k_(rows * rows), n_(rows * rows),
      rows_(rows * NUMBERS), lam_(m - 1), ball_(m - 1), overlaps_(m), coef_b_(m * (m - 1)), coef_x_(m * rows),
      scratch_(rows * (rows + m + 1)), is_sparse_(sparse), basis_(basis_for(d, m, rows, sparse, run_rows)) {
    state.alpha = settings.alpha0;
}

Newton::Newton(const Newton& other)
    : Learner(other),
      settings(other.settings),
      m(other.m),
      size(other.size),
      state(other.state),
      products_(other.products_),
      gram_(other.gram_),
      k_(other.k_),
      n_(other.n_),
      rows_(other.rows_),
      lam_(other.lam_),
      ball_(other.ball_),
      overlaps_(other.overlaps_),
      coef_b_(other.coef_b_),
      coef_x_(other.coef_x_),
      scratch_(other.scratch_.size()),
      is_sparse_(other.is_sparse_),
      basis_(other.basis_->clone()),
      active_(other.active_),
      stored_(other.stored_),
      state_before_(other.state_before_),
      before_(other.before_) {}

std::vector<Part> Newton::parts() {
    std::vector<Part> all = {{"products", products_, {size, m}}, {"gram", gram_, {size, size}},
                             {"k", k_, {size, size}},            {"n", n_, {size, size}},
                             {"rows", rows_, {size, NUMBERS}},   {"lam", lam_, {m - 1}},
                             {"ball", ball_, {m - 1}},           {"overlaps", overlaps_, {m}}};
    for (Part& part : basis_->parts()) all.push_back(std::move(part));
    return all;
}

Block Newton::block() {
    return {settings,
            state,
            size,
            m - 1,
            basis_->features(),
            {products_.data(), size, m},
            {gram_.data(), size, size},
            {k_.data(), size, size},
            {n_.data(), size, size},
            reinterpret_cast<Effect*>(rows_.data()),
            lam_.data(),
            ball_.data(),
            scratch_.data()};
}

// ------------------------------------------------------------------------------------------------- learning

void Newton::add(const Rows& rows, Index done, Index count) {
    if (rows.sparse() != is_sparse_) throw std::invalid_argument("rows must be sparse or dense as the first ones");
    const Block now = block();
    basis_->add(now, rows, done, count);
    block_loops().begin_rows(now, state.filled, state.filled + count);
}

Index Newton::learn(const Rows& rows, const Batch& batch, const double*) {
    Index done = 0;
    while (done < rows.count && !state.overflowed) {
        const Block now = block();
        const Index count = std::min(now.capacity() - state.filled, rows.count - done);
        add(rows, done, count);
        done += block_loops().step_rows(now, batch.from(done), count);
        if (!state.overflowed && now.is_full() && !end_block()) --done;
    }
    return done;
}

bool Newton::step(const Rows& row, const Batch& batch) {
    add(row, 0, 1);
    return block_loops().step_rows(block(), batch, 1) == 1;
}

bool Newton::end_block() {
    store();
    if (!shrink()) {
        state.overflowed = true;
        return false;
    }
    basis_->change(block(), change_);
    return true;
}

// Shrink, fill the change and begin a new block; return whether it succeeded.
bool Newton::shrink() {
    const Block now = block();
    const Index filled = state.filled, r = now.r, had = state.shrinks > 0 ? r : 0, stacked = had + filled;
    change_ = {{coef_b_.data(), m, r}, {coef_x_.data(), m, filled}};
    block_loops().collect_steps(now, scratch_.data(), change_.coef_b[0], change_.coef_x[0]);
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
    if (rank < 0) return false;
    const double noise = gram_noise(stacked, values[0]), least = EPS * EPS * values[0];
    const double delta =
        shrink_values({values, static_cast<std::size_t>(rank)}, m, settings.shrunk, noise, least, now.lam);
    block_loops().write_rows(now, values, vectors, c, change_);
    state.delta = delta;
    state.delta_sum += delta;
    state.alpha += settings.added * delta;
    state.careful = state.alpha <= SMALL_ALPHA * (now.lam[0] + delta);
    state.rank = state.span = 0;
    for (Index j = 0; j < r; ++j) {
        now.ball[j] = 0.0;
        state.rank += now.lam[j] > 0.0;
        state.span += now.lam[j] > state.alpha;
    }
    if (settings.shrink_first) block_loops().step_after_shrink(now, change_);
    state.filled = 0;
    state.shrinks += 1;
    return true;
}

void Newton::collect_steps(double* coef_b, double* coef_x) {
    std::vector<double> scratch(2 * state.filled);  // reading changes nothing
    block_loops().collect_steps(block(), scratch.data(), coef_b, coef_x);
}

void Newton::multiply_weights(double factor) {
    store();
    const Block now = block();
    state.factor *= factor;
    for (Index j = 0; j < now.r; ++j) now.ball[j] *= factor;
    for (Index i = 0; i < state.filled; ++i) {
        now.rows[i].step *= factor;
        now.rows[i].extra *= factor;
    }
}

void Newton::multiply_stored_weights(double factor) {
    store();
    basis_->store_all();
    basis_->multiply_weights(factor);
    for (Index i = 0; i < size; ++i) products_[i * m] *= factor;
    for (Index j = 0; j < m; ++j) overlaps_[j] *= factor;
    overlaps_[0] *= factor;
}

// ------------------------------------------------------------------------------------------------- all rows or none

// Until the block ends, rows are only appended, so that it is enough to reset the counts. Projections onto a ball
// change all weights.
void Newton::begin() {
    commit();
    active_ = true;
    state_before_ = state;
    basis_->begin(state.filled);
    if (settings.domain != Domain::BALL) return;
    store();
    basis_->store_all();
}

// Store the numbers of the rows that the block had at `begin`, before they change.
void Newton::store() {
    if (!active_ || stored_) return;
    const Index n = state_before_.filled;
    before_.put(products_.data(), n * m);
    for (Array<double>* square : {&gram_, &k_, &n_}) before_.put(square->data(), n * size);
    before_.put(rows_.data(), n * NUMBERS);
    for (Array<double>* all : {&lam_, &ball_, &overlaps_}) before_.put(all->data(), all->size());
    stored_ = true;
}

void Newton::commit() {
    active_ = stored_ = false;
    state.extreme = SAFE;
    before_.clear();
    basis_->commit();
}

void Newton::rollback() {
    if (!active_) return;
    if (stored_) {
        const Index n = state_before_.filled;
        Index place = before_.take(0, products_.data(), n * m);
        for (Array<double>* square : {&gram_, &k_, &n_}) place = before_.take(place, square->data(), n * size);
        place = before_.take(place, rows_.data(), n * NUMBERS);
        for (Array<double>* all : {&lam_, &ball_, &overlaps_}) place = before_.take(place, all->data(), all->size());
    }
    state = state_before_;
    basis_->rollback();
    commit();
}

}  // namespace robustfd
