// The state of the untuned learner: statistics of features, a mixture of experts, and the Hessians of the experts.
//
// An expert is a linear model. Experts differ in
//
// - learning rate,
// - memory: the Hessian sums the curvature of all rows (slow) or of recent rows (fast),
// - scaling: each row is divided by its own length, or all rows are multiplied by the same number (linear),
// - form of the Hessian: diagonal, exact, or diagonal plus sketch. Some diagonal ones have one prior for all features.
//
// Bettors have no Hessian and no learning rate: each bets on the sign of the gradient of every feature (hot/line.hpp).
//
// For each row, every expert computes its margin, the mixture of the experts predicts, and every expert takes its step.
// Then the statistics of the features of the row are updated. Rows are processed one at a time, so the result does not
// depend on the batch size. docs/online-mathematics.md has the formulas.
#pragma once

#include <vector>

#include "array.hpp"
#include "level.hpp"
#include "rows.hpp"

namespace robustfd {

constexpr double INTERCEPT = 0.25;  // the value of the intercept, feature 0, in every row
constexpr double GAMMA = 0.999;     // decay of the fast memory per row
constexpr Index WINDOWS = 128;      // windows of the trace of shares
constexpr Index MOST_TURNS = 64;  // of the rows that update the shares of several quantiles
constexpr Index CENTRE_ROWS = 7;    // numbers of a centred feature beside those of Feature
constexpr Index SAMPLED = 4;        // one row in so many counts for what the experts have earned
constexpr double LINE = 0.25;       // the part of the rest that goes to bettors and experts with a flat prior
// The flat prior in units of a0, for classes and for numbers: it is 1 for a model that has the whole prior.
constexpr double FLAT = 16.0 / 3.0, FLAT_OF_NUMBERS = 2.0;
constexpr double OFFERED = 0.5;     // the part of redistributed shares that goes to the experts with a better Hessian
constexpr double ROUND_OFF = 1e-9;  // largest relative difference between values of a constant column and their mean
constexpr double HEAVIEST = 1e12;   // larger sample weights are clipped to this
constexpr double LARGEST_TARGET = 1e30;  // targets are clipped here, in units of the first ones: weights are floats
constexpr Index MOST_RUNGS = 5;          // of an exact Hessian
constexpr Index FOLLOWERS = 4;           // forgetting intercepts of an output
// How redistributed shares are divided among the forgetting intercepts, and the learning rates of these.
constexpr double FOLLOW_SHARE[FOLLOWERS] = {0.97, 0.01, 0.01, 0.01}, FOLLOW[FOLLOWERS] = {0.0, 0.02, 0.1, 0.5};

// Statistics of a feature, one cache line. `slow` and `fast` are the sums of c^2 f^2 zeta^2, where c^2 is the curvature
// of the loss: over all rows, and over recent rows, divided by `fade` in Totals.
struct Feature {
    double count, square, reference, inverse, prior, slow, fast;
    Index number;  // 1, 2, ... for a centred feature, else 0
};

// Totals over all rows.
struct Totals {
    double rows;
    double fade;                    // gamma^rows since it was last reset
    double logarithms, log_weight;  // the weighted sum of log V and the sum of weights, for g
    double length;                  // the common factor of rows for linear experts
    double norm;                    // the mean factor of rows that are divided by their own length
    double weight;                  // the mean sample weight
    double prior;                   // a0
    double by_density;              // whether the prior depends on the density
    double bet_squares, bet_rows;   // sums over rows of 1 + the squares that bettors see, and of 1
};

// Statistics of the targets, and the losses that compare the Hessians. For regression, `spread` and `spread_weight` are
// the decaying sums of squared residuals and of weights, and `huber` is the size at which residuals are clipped, in
// units of the root of their quotient. The experts see targets minus `offset`, divided by `unit`; `low` and `high` are
// their range. If `counts` is 1 the experts predict the logarithm.
// With several quantiles, `turn` counts rows modulo `turns`: a row updates the shares of one quantile in so many.
// `age` is how many rows the mean shares have followed the shares, and `lead` the recent loss of the latter minus that
// of the former.
struct Targets {
    Index numbers;
    double spread, spread_weight, huber, offset, unit, low, high, loss, plain_loss;
    Index stride, counts, turn, turns;
    double age, lead;
};

// The state of all experts, with empty arrays for forms of the Hessian that are not in use. D is d + 1, L the number of
// experts of a memory, and W is D rounded up to a whole number of vectors.
struct Experts {
    Array<Feature> table;     // (D,)
    Array<Totals> totals;     // (1,)
    Array<Index> centred;     // the centred features
    // (CENTRE_ROWS, centred): the centre of each, its mean over recent rows, which is the next centre, and what
    // `unit_shrank` needs: the last value, the mean square of differences between values, and the number, sum of
    // squares and sum of values of a run of small differences.
    Array<double> centre;
    // The mixture. Experts in this order: slow diagonal ones, as many fast diagonal ones, then any bettors and as many
    // with a flat prior, then any with a better Hessian. All but the last count as plain.
    Array<double> rate;       // (experts,): eta, or the endowment alpha of a bettor
    Array<double> linear;  // (experts,): 1 if all rows are multiplied by the same number, 0 if divided by their length
    Array<double> fast;       // (experts,): 1 if the expert's Hessian forgets
    Array<double> share;      // (outputs, experts)
    Array<double> steady;     // (outputs, experts): mean shares over recent rows, for rows that are only predicted
    Array<double> plain;      // (outputs, plain): shares in a mixture of the plain experts alone, if there are others
    Array<double> earned;     // (experts,): shares, summed over every SAMPLED-th row since the Hessians were compared
    Array<double> follow;     // (outputs, 2, FOLLOWERS): forgetting intercepts and their shares
    Array<double> trace;      // (WINDOWS,): the share of forgetting experts, summed over `stride` rows for each window
    Array<Targets> targets;   // (1,)
    Array<double> level;      // (outputs,): the levels of the quantiles to predict, ascending; 0 for another loss
    Array<float> weights;     // (D, 2 half): of the diagonal experts; half is outputs L, rounded up to whole vectors
    // (D, 4, outputs bettors): z, g and wealth of bettors, and the weights of experts with a flat prior
    Array<float> bets;
    // The exact Hessian, with one or two memories, slow and fast, and several rungs. A rung is an inverse with its
    // experts. The fast memory has the last rung, and the slow memory all others, with smaller and smaller priors.
    Array<double> ladder;         // (rungs,): the factor of the prior
    Array<double> inverse;        // (rungs, D, W): the inverse of H when it was last recomputed
    Array<double> past;           // (memories, D, D): the sum of c^2 x x' up to the last update
    Array<double> block;          // (D, W): the sum since then; only the lower triangle is read
    Array<double> exact_weights;  // (D, rungs outputs L)
    // The Hessian D + B'B with a sketch B of m - 1 rows.
    Array<double> u;            // (D, m - 1)
    Array<double> diagonal;     // (D,): at the last update; 0 before a feature occurs
    Array<double> low_weights;  // (D, outputs L): a
    Array<double> along;        // (m - 1, outputs L): b
    Array<double> sketch;       // (m - 1, D): B, with zero rows last
    Array<double> lam;          // (m - 1,): their squared lengths
    Array<double> buffer;       // (2 m, D): rows since the last shrink
    Array<Index> filled;        // (1,): the number of these rows

    // Call see(name, array of each of `all`) for every array. Copies, snapshots and memory accounting use this list.
    template <class See, class... E> static void visit(See&& see, E&... all) {
        see("table", all.table...), see("totals", all.totals...), see("centred", all.centred...);
        see("centre", all.centre...), see("rate", all.rate...), see("linear", all.linear...);
        see("fast", all.fast...), see("share", all.share...), see("plain", all.plain...);
        see("steady", all.steady...), see("earned", all.earned...);
        see("follow", all.follow...), see("trace", all.trace...), see("targets", all.targets...);
        see("level", all.level...);
        see("weights", all.weights...), see("bets", all.bets...), see("ladder", all.ladder...);
        see("inverse", all.inverse...), see("past", all.past...);
        see("block", all.block...), see("exact_weights", all.exact_weights...), see("u", all.u...);
        see("diagonal", all.diagonal...), see("low_weights", all.low_weights...), see("along", all.along...);
        see("sketch", all.sketch...), see("lam", all.lam...), see("buffer", all.buffer...);
        see("filled", all.filled...);
    }

    Index features() const { return table.size() - 1; }
    Index outputs() const { return share.shape(0); }
    Index experts() const { return rate.size(); }
    Index plain_experts() const { return plain.shape(1); }
    Index bettors() const { return has_line() ? bets.shape(2) / outputs() : 0; }  // of an output
    Index count() const { return plain.shape(1) / 2 - bettors(); }                // L
    bool has_line() const { return bets.size() > 0; }
    bool has_levels() const { return level[0] > 0.0; }
    Index middle() const { return outputs() / 2; }  // the level whose residuals are the typical ones
    bool has_exact() const { return block.size() > 0; }
    Index rungs() const { return ladder.size(); }
    Index memory_of(Index rung) const { return past.shape(0) > 1 && rung == rungs() - 1 ? 1 : 0; }
    bool has_sketch() const { return diagonal.size() > 0; }
    bool is_full() const { return has_sketch() && filled[0] == buffer.shape(0); }  // it must shrink before a row

    Experts shared() const;  // the same arrays, not copies
    void check() const;  // throws std::invalid_argument unless all shapes fit each other and all indices are in range
    void renew_exact(double faded);  // see experts.cpp
};

// What rows may change in the experts, to restore it after an error. The statistics and diagonal weights of many
// features are large, so only those of the features that the rows have are copied.
class Kept {
  public:
    // Keep all that `rows` rows with these features (all features if `every`) may change.
    Kept(Experts& experts, Index rows, Span<const std::int32_t> features, bool every);
    void restore(Experts& experts) const;

  private:
    Experts same_, copies_;  // the arrays themselves, and copies of all but the table and the diagonal weights
    std::vector<Index> features_;
    std::vector<Feature> table_;
    std::vector<float> weights_, bets_;
};

// Scratch memory of a row. Experts are numbered as in the mixture.
struct Work {
    Index *feature, *due;  // (entries,): the features that occur, and those of them whose scales are due for an update
    double *raw, *value, *step_slow, *step_fast;  // (entries,): x, zeta, and zeta divided by the two diagonal Hessians
    double *count, *square, *moved;  // (entries,): statistics of features that are not centred (`record_values`)
    double* step_flat;                   // (entries,): zeta divided by the diagonal Hessian with a flat prior
    float *alpha, *bet, *flat;           // (outputs bettors,): rates; sums, then steps, of bettors and of flat priors
    float* sums;                         // products of the row with the diagonal weights; then changes of the weights
    double *kappa, *chance, *total;      // (experts,): total is the log-sum-exp of the margins of all classes
    // The arguments of `implicit_steps`, (experts + LONGEST_VECTOR,): after the experts come forgetting intercepts.
    float *z, *length, *chance32, *step32;
    double *margin, *step;               // (outputs, experts)
    float* softmax;                      // (outputs, experts): class probabilities
    double* better[3];                   // (rungs outputs L) each: like `sums`, for experts with a better Hessian
    double* direction[MOST_RUNGS + 1];   // directions of experts with a better Hessian; the last is scratch
    double *output, *plain;              // (outputs,): the prediction, and that of the diagonal experts alone
    double* shares;                      // (3 outputs experts,): copies, while known rows are learned
};

// Owner of the memory of a Work.
class Scratch {
  public:
    Scratch() = default;
    Scratch(const Experts& experts, Index entries);   // for rows of so many entries
    void fit(const Experts& experts, Index entries);  // the same, if there is no room for them
    Work work{};

  private:
    Index divide(const Experts& experts, double* memory);
    Array<double> memory_;
    Index entries_ = -1, outputs_ = 0, experts_ = 0, bettors_ = 0, direction_ = 0;
};

// What rows are: new; the first rows again, whose statistics of features are known; or rows of an earlier pass, which
// leave the shares as they are, since they would favour experts that remember them.
enum class Lesson { fresh, replayed, known };

struct UntunedLoops {
    // Learn rows first to last - 1 and fill their predictions (rows, outputs) before each step, and `readings` with what
    // `read` would have predicted then, unless it is null; return the row at which the sketch was full, or `last`.
    Index (*learn)(Experts& experts, const Work& work, const Rows& rows, Index first, Index last, const double* y,
                   const double* weight, double* predictions, double* readings, Lesson lesson);
    // Fill the predictions of all rows.
    void (*read)(const Experts& experts, const Work& work, const Rows& rows, double* predictions);
    // Fill the predictions of all rows, and their variances: the mean of x'H^-1 x over the experts, by shares, times
    // `widening` (hot/untuned.cpp).
    void (*doubt)(const Experts& experts, const Work& work, const Rows& rows, double* predictions, double* variances);
    // List the contributions of features to predictions: those of row i are at indptr[i] to indptr[i + 1] - 1 of
    // `which` and of the rows of `parts`. `effects` has shape (3, features, outputs). It holds the contribution of zeta
    // = 1 in rows that are divided by their own length, the same in rows with a common factor, and the constant that
    // refers a centred feature to 0.
    void (*explain)(const Experts& experts, const Work& work, const Rows& rows, const double* effects, Index* indptr,
                    Index* which, double* parts);
    // Set S and P of features from their statistics.
    void (*first_scales)(Experts& experts, const Index* which, Index count);
    // The steps of experts with the logistic loss (hot/steps.hpp), for tests; n is a multiple of LONGEST_VECTOR.
    void (*implicit_steps)(const float* z, const float* length, float* chance, float* step, Index n);
};

RFD_LEVELS(UntunedLoops, untuned_loops)

}  // namespace robustfd
