#include "run.hpp"

#include "lanes.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

// Load a row of the basis into the cache.
void fetch(const double* row, Index q) {
#if defined(__GNUC__)
    for (Index j = 0; j < q; j += 8) __builtin_prefetch(row + j);
#endif
    (void)row, (void)q;
}

// Apply the change (r, q) of the runs a feature missed to its `old` values, and store the result in `current`.
void update_feature(const double* old, Matrix<const double> change, double* current) {
    const Index r = change.rows, q = change.cols;
    current[0] = old[0];
    for (Index j = 1; j < q; ++j) current[j] = 0.0;
    for (Index i = 0; i < r; ++i)
        if (old[1 + i] != 0.0) add_multiple(current, change[i], old[1 + i], q);
}

void gather(const Run& run, const std::int32_t* indices, Index first, Index last) {
    RunState& state = run.state;
    const Index before = state.features, now = state.number;
    Index oldest = 0;
    for (Index e = first; e < last; ++e) {
        const std::int32_t j = indices[e];
        if (run.place[j] != 0) continue;
        const Index k = state.features++;
        run.place[j] = static_cast<std::int32_t>(k + 1);
        run.feature[k] = j;
        run.latest[k] = -1;
        run.used[k] = static_cast<std::int32_t>(PIECE);
        fetch(run.basis[j], run.q);
        const Index missed = now - run.age[j];
        oldest = missed > oldest ? missed : oldest;
    }
    if (oldest > 0) fill_reach(run, oldest);
    for (Index k = before; k < state.features; ++k) {
        const std::int32_t j = run.feature[k];
        const double* source = run.basis[j];
        double* target = run.gathered[k];
        const Index missed = now - run.age[j];
        if (missed > 0)
            update_feature(source, run.reach_of(missed), target);
        else
            for (Index i = 0; i < run.q; ++i) target[i] = source[i];
    }
}

RFD_INLINE void append(const Run& run, Index k, double value, Index row) {
    if (run.used[k] == PIECE) {
        const auto piece = static_cast<std::int32_t>(run.state.pieces++);
        run.before[piece] = run.latest[k];
        run.latest[k] = piece;
        run.used[k] = 0;
    }
    const Index place = run.latest[k] * PIECE + run.used[k]++;
    run.value[place] = value;
    run.row[place] = static_cast<std::int32_t>(row);
}

void append_entry(const Run& run, Index position, double value, Index row) {
    append(run, position, value, row);
    run.state.entries += 1;
}

void append_row(const Run& run, const SparseRow& row, double* products, double* overlaps) {
    RunState& state = run.state;
    const Index number = state.rows;
    for (Index j = 0; j < run.q; ++j) products[j] = 0.0;
    for (Index j = 0; j < number; ++j) overlaps[j] = 0.0;
    double own = 0.0;
    for (Index e = 0; e < row.size; ++e) {
        const Index k = run.place[row.columns[e]] - 1;
        const double x = row.values[e];
        add_multiple(products, static_cast<const double*>(run.gathered[k]), x, run.q);
        Index piece = run.latest[k], size = run.used[k];
        while (piece >= 0) {
            const std::int32_t* others = run.row + piece * PIECE;
            const double* values = run.value + piece * PIECE;
            for (Index j = 0; j < size; ++j) overlaps[others[j]] += x * values[j];
            piece = run.before[piece];
            size = PIECE;
        }
        own += x * x;
    }
    overlaps[number] = own;
    for (Index e = 0; e < row.size; ++e) append(run, run.place[row.columns[e]] - 1, row.values[e], number);
    state.entries += row.size;
    state.rows += 1;
}

void write_back(const Run& run, Index first, Matrix<double> current) {
    const double* on_rows = run.coefficients[run.r];
    const Index q = run.q;
    for (Index k = 0; k < current.rows; ++k) fetch(run.basis[run.feature[first + k]], q);
    for (Index k = 0; k < current.rows; ++k) {
        const std::int32_t feature = run.feature[first + k];
        double* target = run.basis[feature];
        Index piece = run.latest[first + k], size = run.used[first + k];
        while (piece >= 0) {
            for (Index i = piece * PIECE; i < piece * PIECE + size; ++i)
                add_multiple(current[k], on_rows + run.row[i] * q, run.value[i], q);
            piece = run.before[piece];
            size = PIECE;
        }
        run.place[feature] = 0;
        run.age[feature] = static_cast<std::uint8_t>(run.state.number + 1);
        for (Index j = 0; j < q; ++j) target[j] = current(k, j);
    }
}

void catch_up(const Run& run, double* current) {
    for (Index feature = 0; feature < run.d; ++feature) {
        const Index missed = RUNS - run.age[feature];
        double* target = run.basis[feature];
        run.age[feature] = 0;
        if (missed == 0) continue;
        update_feature(target, run.reach_of(missed), current);
        for (Index j = 0; j < run.q; ++j) target[j] = current[j];
    }
}

void read(const Run& run, const std::int32_t* features, Index count, double of_w, const double* coefficients,
          double* current, double* out) {
    const double* on_rows = coefficients + run.r;
    for (Index k = 0; k < count; ++k) {
        const Index feature = features ? features[k] : k, here = run.place[feature] - 1;
        if (here < 0) {
            update_feature(run.basis[feature], run.reach_of(run.state.number - run.age[feature]), current);
            out[k] = of_w * current[0] + dot(current + 1, coefficients, run.r);
            continue;
        }
        double total = of_w * run.gathered(here, 0) + dot(run.gathered[here] + 1, coefficients, run.r);
        Index piece = run.latest[here], size = run.used[here];
        while (piece >= 0) {
            for (Index i = piece * PIECE; i < piece * PIECE + size; ++i) total += run.value[i] * on_rows[run.row[i]];
            piece = run.before[piece];
            size = PIECE;
        }
        out[k] = total;
    }
}

}  // namespace

extern const RunLoops run_loops{gather, append_row, append_entry, write_back, catch_up, read};

}  // namespace robustfd::RFD_LEVEL
