// The loops of the untuned learner over rows.
#include <bit>

#include "line.hpp"
#include "number_steps.hpp"

namespace robustfd::RFD_LEVEL {

namespace {

constexpr double LONGEST = 1e100;  // values in units of their feature are clipped here, so that squares do not overflow
constexpr double ODD = 30.0;       // a centred value farther from its mean, in units of its feature, counts as missing
constexpr double FADED = 1e-200;    // a fade below this is multiplied in and reset to 1
constexpr double FAR = 100.0;       // largest mean square of a row for linear experts; longer rows are shortened to it
constexpr double LN2 = 0.69314718055994531;
constexpr double HUGE_ROW = 1e30;   // rows with a larger sum of squares are shortened to it, since weights are floats

constexpr Index AHEAD = 8;  // so many entries ahead, features are fetched into the first cache

// Fetch memory into a cache: the first or the second.
template <int CACHE> RFD_INLINE void prefetch(const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 4 - CACHE);
#else
    (void)address;
#endif
}

// Fetch what feature j has.
template <int CACHE> RFD_INLINE void fetch_feature(const Experts& e, Index j) {
    prefetch<CACHE>(e.table.data() + j), prefetch<CACHE>(e.weights.data() + j * e.weights.shape(1));
}

// Fetch what the features of a sparse row have into the second cache.
inline void fetch_row(const Experts& e, const Rows& rows, Index i) {
    if (!rows.indptr || i >= rows.count) return;
    const Index bets = e.has_line() ? e.bets.shape(1) * e.bets.shape(2) : 0;
    for (Index k = rows.indptr[i]; k < rows.indptr[i + 1]; ++k) {
        const Index j = static_cast<Index>(rows.indices[k]) + 1;
        fetch_feature<2>(e, j);
        if (bets) prefetch<2>(e.bets.data() + j * bets);
    }
}

// Sums over the entries of a row, while it is scaled.
struct Scaled {
    double total = 0.0;                        // of zeta^2
    double slow = 0.0, fast = 0.0, flat = 0.0; // x'H^-1 x for the diagonal Hessians
    double logarithms = 0.0, met = 0.0;        // of the squares of features that are new
    double unseen = 0.0, fresh = 0.0;          // x'H^-1 x and the squares of features that have not occurred
};

// z of a value of a centred feature.
inline double centred_value(const Experts& e, const Feature& f, double x) {
    const double centre = e.centre[f.number - 1], z = x - centre;
    return fabs(z) <= ROUND_OFF * fabs(centre) ? 0.0 : z;
}

// Meet a feature that has not occurred: to learn, it is initialised. Otherwise it adds to the length of the row, and to
// its variance with the prior that it would get.
template <Use use> RFD_RARE void meet_feature(Experts& e, Feature& f, double square, Scaled& sums) {
    const Totals& totals = e.totals[0];
    if constexpr (use == Use::learn) {
        init_feature(f, totals, square);
        sums.logarithms += log(square);
        sums.met += 1.0;
    } else {
        const double scaled = totals.log_weight > 0.0 ? square / exp(totals.logarithms / totals.log_weight) : 1.0;
        sums.total += scaled;
        if constexpr (use == Use::doubt) sums.unseen += scaled / prior_of(f, totals), sums.fresh += scaled;
    }
}

// Shorten a row that is so long that float weights would overflow.
template <Use use> RFD_RARE void shorten(const Work& work, Index n, Scaled& sums) {
    const double shorter = sqrt(HUGE_ROW / sums.total);
    for (Index i = 0; i < n; ++i) {
        work.value[i] *= shorter;
        if constexpr (use == Use::read) continue;
        for (double* step : {work.step_slow, work.step_fast, work.step_flat}) step[i] *= shorter;
    }
    sums.total = HUGE_ROW;
    for (double* sum : {&sums.slow, &sums.fast, &sums.flat, &sums.unseen, &sums.fresh}) *sum *= shorter * shorter;
}

// Write entry i of `work`: feature j with the value x, its zeta before clipping and, unless the row is only read, its
// entries in the diagonal Hessians. To learn, initialise a feature that is new.
template <Use use>
RFD_INLINE void list_entry(Experts& e, const Work& work, Index i, Index j, double x, double z, double prior,
                           Scaled& sums) {
    Feature& f = e.table[j];
    if (f.inverse == 0.0) [[unlikely]] {
        if (z * z > 0.0)
            meet_feature<use>(e, f, z * z, sums);
        else if (f.number == 0)
            x = NAN;  // its statistics remain those of a feature that has not occurred
    }
    work.feature[i] = j;
    work.raw[i] = x;
    work.value[i] = z * f.inverse;
    if constexpr (use == Use::read) return;
    if constexpr (use == Use::learn) work.count[i] = f.count, work.square[i] = f.square, work.moved[i] = f.reference;
    work.step_slow[i] = f.prior + f.slow;
    work.step_fast[i] = f.prior + f.fast * e.totals[0].fade;
    work.step_flat[i] = prior + f.slow;
}

// List the centred features and then the other non-zeros of row i; return their number.
template <Use use> Index list_row(Experts& e, const Rows& rows, Index i, const Work& work, Scaled& sums) {
    const Index centred = e.centred.size();
    const Index* which = e.centred.data();
    const double prior = flat_prior(e), *x = rows.indptr ? nullptr : rows.data + i * rows.width;
    Index n = centred;
    const auto list = [&](Index j, double value) { list_entry<use>(e, work, n++, j, value, value, prior, sums); };
    for (Index k = 0; k < centred; ++k) work.raw[k] = x ? x[which[k] - 1] : 0.0;
    if (!x)
        for (Index k = rows.indptr[i], end = rows.indptr[i + 1]; k < end; ++k) {
            const Index j = static_cast<Index>(rows.indices[k]) + 1;
            if (k + AHEAD < end) fetch_feature<1>(e, static_cast<Index>(rows.indices[k + AHEAD]) + 1);
            if (const Index number = e.table[j].number; number > 0)
                work.raw[number - 1] += rows.data[k];
            else if (rows.data[k] != 0.0)
                list(j, rows.data[k]);
        }
    else if (centred < rows.width)
        for (Index j = 0; j < rows.width; ++j)
            if (x[j] != 0.0 && e.table[j + 1].number == 0) list(j + 1, x[j]);
    for (Index k = 0; k < centred; ++k) {
        const double value = work.raw[k];
        list_entry<use>(e, work, k, which[k], value, centred_value(e, e.table[which[k]], value), prior, sums);
        if (fabs(work.value[k]) > ODD) work.value[k] = 0.0;
    }
    return n;
}

// Divide zeta by the entries of a diagonal Hessian, in place, and return x'H^-1 x.
inline double divide(const double* __restrict value, double* __restrict step, Index n) {
    for (Index i = 0; i < n; ++i) step[i] = value[i] != 0.0 ? value[i] / step[i] : 0.0;
    return dot(value, step, n);
}

// Clip zeta and, unless the row is only read, divide it by the diagonal Hessians. A missing value counts as the mean, or
// as 0 if the feature is not centred.
template <Use use> void scale_entries(const Experts& e, const Work& work, Index n, Scaled& sums) {
    double* value = work.value;
    for (Index i = 0; i < n; ++i) value[i] = value[i] * value[i] > 0.0 ? clipped(value[i], -LONGEST, LONGEST) : 0.0;
    sums.total += dot(value, value, n);
    if constexpr (use == Use::read) return;
    sums.slow = divide(value, work.step_slow, n);
    sums.fast = divide(value, work.step_fast, n);
    if (e.has_line()) sums.flat = divide(value, work.step_flat, n);
}

// Scale row i.
template <Use use> Row scale_row(Experts& e, const Rows& rows, Index i, const Work& work) {
    Totals& totals = e.totals[0];
    Scaled sums;
    const Index n = list_row<use>(e, rows, i, work, sums);
    scale_entries<use>(e, work, n, sums);
    if constexpr (use == Use::learn) {
        totals.logarithms += sums.logarithms;
        totals.log_weight += sums.met;
    }
    if (sums.total > HUGE_ROW) shorten<use>(work, n, sums);
    const double entries = static_cast<double>(n), total = sums.total;
    const double length = totals.length * (total > FAR * entries ? sqrt(FAR * entries / total) : 1.0);
    const double norm = n > 0 ? sqrt(2.0 / (total + entries)) : 1.0, curve = e.targets[0].numbers ? length : norm;
    return {n, norm, length, curve, sums.slow, sums.fast, sums.flat, sums.unseen, sums.fresh};
}

// Fill `work` with the margins of all experts on row i and, unless it is only read, with kappa; return the scaled row.
template <Use use> Row fill_margins(Experts& e, const Rows& rows, Index i, const Work& work) {
    const Row row = scale_row<use>(e, rows, i, work);
    diagonal_margins<use>(e, row, work);
    if (e.has_line()) line_margins<use>(e, row, work);
    if (e.has_exact()) exact_margins<use>(e, row, work);
    if (e.has_sketch()) sketch_margins<use>(e, row, work);
    return row;
}

// Multiply the weights of feature j by `change`, since its scaled values become smaller by this factor, and divide its
// entries in the Hessians accordingly.
void rescale(Experts& e, Index j, double change) {
    float* mine = e.weights.matrix()[j];
    for (Index k = 0; k < e.weights.shape(1); ++k) mine[k] = static_cast<float>(static_cast<double>(mine[k]) * change);
    if (e.has_line()) line_rescale(e, j, change);
    if (e.has_exact()) exact_rescale(e, j, change);
    if (e.has_sketch()) sketch_rescale(e, j, change);
}

// Correct the intercepts for a move of the centre of feature j by `away`, in units of the feature.
RFD_RARE void move_centre(Experts& e, Index j, double away) {
    const Totals& totals = e.totals[0];
    const double norm = totals.norm * away / INTERCEPT, length = totals.length * away / INTERCEPT;
    diagonal_move_centre(e, j, norm, length);
    if (e.has_line()) line_move_centre(e, j, norm, length);
    if (e.has_exact()) exact_move_centre(e, j, norm, length);
    if (e.has_sketch()) sketch_move_centre(e, j, norm, length);
}

// Weighted sums of log V of features that were updated, and of the weights.
struct Logarithms {
    double sum = 0.0, weight = 0.0;
};

// Update the scale of feature j.
RFD_APART void renew_feature(Experts& e, Index j, Logarithms& more) {
    Feature& f = e.table[j];
    const double change = renew_scale(f, e.totals[0]);
    if (change != 1.0) rescale(e, j, change);
    if (f.number == 0 && is_regular(f.count)) {
        more.sum += 0.75 * f.count * log(f.square);
        more.weight += 0.75 * f.count;
    }
}

// Update the statistics of a centred feature j with x; return whether its scale is due for an update.
bool record_centred(Experts& e, Index j, double x) {
    Feature& f = e.table[j];
    const Index many = e.centred.size();
    double *centre = e.centre.data() + f.number - 1, *mean = centre + many;
    if (unit_shrank(f, centre, many, x)) return false;
    record_centred_value(f, *mean, x);
    const bool due = is_due(f.count, f.square, moved(f.square, f.reference));
    const double away = (*mean - *centre) * f.inverse;
    if (due || fabs(away) > MOVE) {
        move_centre(e, j, away);
        *centre = *mean;
    }
    return due;
}

// Update the statistics of the centred features of a row, and the scales of `due` other features. The result does not
// depend on the order of the entries.
void record_row(Experts& e, const Work& work, Index due) {
    Logarithms more;
    for (Index i = 0; i < e.centred.size(); ++i) {
        const Index j = work.feature[i];
        const double x = work.raw[i];
        if (e.table[j].inverse != 0.0 && x == x && record_centred(e, j, x)) renew_feature(e, j, more);
    }
    for (Index i = 0; i < due; ++i) renew_feature(e, work.due[i], more);
    e.totals[0].logarithms += more.sum;
    e.totals[0].log_weight += more.weight;
}

// Copy the shares of experts to work.shares, or back.
void copy_shares(Experts& e, const Work& work, bool back) {
    double* kept = work.shares;
    for (const Array<double>* shares : {&e.share, &e.steady, &e.plain}) {
        const Index n = shares->size();
        for (Index k = 0; k < n; ++k) (back ? shares->data() : kept)[k] = (back ? kept : shares->data())[k];
        kept += n;
    }
}

// Take the steps of a row after `fill_margins` and `predict`, and update shares and the statistics of its features.
void learn_row(Experts& e, const Work& work, const Row& row, double y, double weight, Lesson lesson) {
    Totals& totals = e.totals[0];
    weight = smaller(weight, HEAVIEST);
    if (totals.rows == 0.0) totals.weight = weight;
    const auto number = static_cast<Index>(totals.rows);
    const bool record = lesson != Lesson::replayed;
    if (record) record_shares(e, number);
    const double power = weight / totals.weight;
    const double c2 =
        e.targets[0].numbers ? learn_number(e, work, y, weight, power) : learn_classes(e, work, y, weight, power);
    follow_shares(e);
    if (lesson == Lesson::known) copy_shares(e, work, true);
    if (e.has_line()) line_steps(e, row, work);
    const Index due = diagonal_steps(e, row, work, c2, record);
    if (e.has_exact()) exact_steps(e, row, work, c2);
    if (e.has_sketch()) sketch_steps(e, row, work, c2, number);
    totals.fade *= GAMMA;
    if (totals.fade < FADED) {
        for (Index j = 0; j < e.table.size(); ++j) e.table[j].fast *= totals.fade;
        totals.fade = 1.0;
    }
    if (!record) return;
    totals.rows += 1.0;
    const double window = smaller(totals.rows, WINDOW);
    totals.norm += (row.norm - totals.norm) / window;
    totals.weight += (weight - totals.weight) / window;
    record_row(e, work, due);
}

// Write the prediction; numbers are in the original units of the targets. Quantiles are sorted, since crossing ones have
// a larger loss.
void write_output(const Experts& e, const Work& work, double* out) {
    const Targets& t = e.targets[0];
    for (Index c = 0; c < e.outputs(); ++c)
        out[c] = t.counts ? t.unit * exp(work.output[c]) : t.offset + t.unit * work.output[c];
    if (!e.has_levels()) return;
    for (Index c = 1; c < e.outputs(); ++c) {
        const double p = out[c];
        Index place = c;
        for (; place > 0 && out[place - 1] > p; --place) out[place] = out[place - 1];
        out[place] = p;
    }
}

Index learn(Experts& e, const Work& work, const Rows& rows, Index first, Index last, const double* y,
            const double* weight, double* predictions, double* readings, Lesson lesson) {
    const Index outputs = e.outputs();
    if (lesson == Lesson::known) copy_shares(e, work, false);
    for (Index i = first; i < last; ++i) {
        if (e.is_full()) return i;
        fetch_row(e, rows, i + 1);
        const Row row = fill_margins<Use::learn>(e, rows, i, work);
        if (readings) {
            predict(e, work, e.steady.data());
            write_output(e, work, readings + i * outputs);
        }
        predict(e, work, e.share.data());
        write_output(e, work, predictions + i * outputs);
        learn_row(e, work, row, y[i], weight[i], lesson);
    }
    return last;
}

void read(const Experts& e, const Work& work, const Rows& rows, double* predictions) {
    Experts& same = const_cast<Experts&>(e);  // `fill_margins<Use::read>` changes nothing
    for (Index i = 0; i < rows.count; ++i) {
        fetch_row(e, rows, i + 1);
        fill_margins<Use::read>(same, rows, i, work);
        predict(e, work, e.steady.data());
        write_output(e, work, predictions + i * e.outputs());
    }
}

// How much larger variances are than those by H^-1 alone: the root of the mean learning rate by shares, relative to the
// mean of all experts; both means are geometric, and rates are powers of 2. A learner that does best with long steps
// knows its weights less well.
double widening(const Experts& e, Index c) {
    const Index n = e.experts();
    const double* share = e.steady.data() + c * n;
    double powers = 0.0;
    for (Index k = 0; k < n; ++k) {
        const auto power = static_cast<double>(std::bit_cast<Index>(e.rate[k]) >> 52) - 1023.0;  // of a power of 2
        powers += (share[k] - 1.0 / static_cast<double>(n)) * power;
    }
    return exp(0.5 * LN2 * powers);
}

void doubt(const Experts& e, const Work& work, const Rows& rows, double* predictions, double* variances) {
    Experts& same = const_cast<Experts&>(e);  // `fill_margins<Use::doubt>` changes nothing
    const Index n = e.experts();
    for (Index i = 0; i < rows.count; ++i) {
        fetch_row(e, rows, i + 1);
        fill_margins<Use::doubt>(same, rows, i, work);
        predict(e, work, e.steady.data());
        write_output(e, work, predictions + i * e.outputs());
        for (Index c = 0; c < e.outputs(); ++c)
            variances[i * e.outputs() + c] = widening(e, c) * dot(e.steady.data() + c * n, work.kappa, n);
    }
}

void explain(const Experts& e, const Work& work, const Rows& rows, const double* effects, Index* indptr, Index* which,
             double* parts) {
    Experts& same = const_cast<Experts&>(e);  // `scale_row<Use::read>` changes nothing
    const Index outputs = e.outputs(), plane = e.table.size() * outputs;
    for (Index i = 0; i < rows.count; ++i) {
        const Row row = scale_row<Use::read>(same, rows, i, work);
        const Index begin = indptr[i];
        for (Index k = 0; k < row.size; ++k) {
            const Index j = work.feature[k];
            const double zeta = work.value[k], *effect = effects + j * outputs;
            which[begin + k] = j - 1;
            for (Index c = 0; c < outputs; ++c)
                parts[(begin + k) * outputs + c] =
                    zeta * (row.norm * effect[c] + row.length * effect[plane + c]) + effect[2 * plane + c];
        }
        indptr[i + 1] = begin + row.size;
    }
}

void first_scales(Experts& e, const Index* which, Index count) {
    const Totals& totals = e.totals[0];
    for (Index k = 0; k < count; ++k) {
        Feature& f = e.table[which[k]];
        if (f.square > 0.0) {
            f.inverse = 1.0 / sqrt(scale_square(f, totals));
            f.prior = prior_of(f, totals);
            f.reference = f.square;
        }
    }
}

}  // namespace

extern const UntunedLoops untuned_loops{learn, read, doubt, explain, first_scales, implicit_steps};

}  // namespace robustfd::RFD_LEVEL
