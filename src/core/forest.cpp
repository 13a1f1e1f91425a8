#include "forest.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

namespace robustfd {

namespace {

struct alignas(16) Sum {
    double g = 0.0, h = 0.0;
};

constexpr Index CELLS = BINS + 1;         // of the histogram of a column at most
constexpr Index HISTOGRAMS = (Index{1} << (DEPTH - 1)) + 1;  // at most, with one that is dropped at once
constexpr std::size_t TOGETHER = 4;      // columns whose histograms are summed in one loop

// A pseudo-random number of a counter (Steele, Lea and Flood 2014), so that trees depend on nothing but the seed.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
    std::uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

// The best cut of a node: of a column, by its number, with missing values on one side.
struct Cut {
    double gain = 0.0;
    Index column = -1, number = 0;
    bool missing_right = false;
    Sum left, right;
};

// Grows one tree after the other; the memory is shared by all.
class Grower {
  public:
    explicit Grower(const Boosting& data) : data_(data), n_(data.bins.cols) {
        for (auto* some : {&rows_, &spare_, &others_}) some->resize(static_cast<std::size_t>(n_));
        pairs_.resize(static_cast<std::size_t>(n_));
        for (Index j = 0; j < data.cuts.rows; ++j)
            cuts_.push_back(std::lower_bound(data.cuts[j], data.cuts[j] + BINS, NOWHERE) - data.cuts[j]);
        std::vector<Index> sizes;
        for (Index j = 0; j < data.cuts.rows; ++j) sizes.push_back(cells(j));
        std::ranges::sort(sizes, std::greater<>());
        sizes.resize(std::min(sizes.size(), static_cast<std::size_t>(MOST_COLUMNS)));
        const Index largest = std::accumulate(sizes.begin(), sizes.end(), Index{0});
        histograms_ = std::make_unique_for_overwrite<Sum[]>(static_cast<std::size_t>(HISTOGRAMS * largest));
    }

    void grow(Index output, Index t, const Trees& trees) {
        place_ = trees.place[t], cut_ = trees.cut[t], value_ = trees.value[t], gain_ = trees.gain[t];
        output_ = output;
        std::fill_n(place_, INNER, 0), std::fill_n(cut_, INNER, NOWHERE), std::fill_n(gain_, INNER, 0.0F);
        std::fill_n(value_, NODES, 0.0);
        choose_rows(t);
        choose_columns(t);
        const Sum all = start_root();
        least_ = LEAST * std::min(1.0, 2.0 * all.h / std::max(total_weight_, 1e-300));
        for (Index level = 0; level < DEPTH; ++level) grow_level(level);
        update_margins();
    }

  private:
    const Boosting& data_;
    Index n_, output_ = 0;
    std::vector<std::int32_t> rows_, spare_;   // of the nodes, one after the other
    std::vector<std::int32_t> others_;         // those on the right of a cut
    std::vector<Sum> pairs_;                   // gradients of the rows of a node
    std::vector<Index> cuts_;                  // number of cuts of each column
    std::vector<Index> columns_;               // of this tree
    Index size_ = 0;                           // of the histograms of a node
    std::unique_ptr<Sum[]> histograms_;        // of the nodes of a level, in any order; none of them is filled at first
    std::vector<Index> slot_;                  // where the histograms of each node of a level are
    Index used_ = 0;                           // slots in use
    std::vector<Index> begin_;                 // where the rows of each node of a level begin
    std::vector<Sum> sums_;                    // of each node of a level
    std::vector<char> alive_;                  // whether a node of the level exists and may be split
    double least_ = LEAST, total_weight_ = 0.0;
    std::int32_t* place_ = nullptr;
    double *cut_ = nullptr, *value_ = nullptr;
    float* gain_ = nullptr;

    Index cells(Index column) const { return cuts_[static_cast<std::size_t>(column)] + 2; }
    Sum* histogram(Index slot) { return histograms_.get() + slot * size_; }

    // A random half of the rows.
    void choose_rows(Index t) {
        rows_.resize(static_cast<std::size_t>(n_));
        const std::uint64_t seed = random_bits(data_.seed, static_cast<std::uint64_t>(t));
        std::size_t m = 0;
        for (Index i = 0; i < n_; i += 64) {
            std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(i));
            for (Index j = i; j < std::min(i + 64, n_); ++j, bits >>= 1) {
                rows_[m] = static_cast<std::int32_t>(j);
                m += bits & 1;
            }
        }
        rows_.resize(m);
    }

    void choose_columns(Index t) {
        columns_.clear();
        for (Index j = 0; j < data_.bins.rows; ++j) {
            const auto owner = data_.owner[static_cast<std::size_t>(j)];
            if (cuts_[static_cast<std::size_t>(j)] > 0 && (owner < 0 || owner == output_)) columns_.push_back(j);
        }
        const std::uint64_t seed = random_bits(~data_.seed, static_cast<std::uint64_t>(t));
        const auto all = columns_.size();
        if (all <= static_cast<std::size_t>(MOST_COLUMNS)) return;
        for (std::size_t k = 0; k < static_cast<std::size_t>(MOST_COLUMNS); ++k)
            std::swap(columns_[k], columns_[k + random_bits(seed, k) % (all - k)]);
        columns_.resize(static_cast<std::size_t>(MOST_COLUMNS));
        std::sort(columns_.begin(), columns_.end());
    }

    Sum start_root() {
        Sum all;
        double weight = 0.0;
        for (const std::int32_t i : rows_) {
            all.g += data_.gradient(i, output_), all.h += data_.curvature(i, output_);
            weight += data_.weight[static_cast<std::size_t>(i)];
        }
        total_weight_ = weight;
        sums_.assign(1, all), alive_.assign(1, 1);
        begin_ = {0, static_cast<Index>(rows_.size())};
        size_ = 0, slot_.assign(1, 0), used_ = 1;
        for (const Index column : columns_) size_ += cells(column);
        fill_histogram(0, begin_[1], histogram(0));
        value_[0] = value_of(all);
        return all;
    }

    static double value_of(const Sum& sum) { return -RATE * sum.g / (sum.h + LAMBDA); }

    // Sum the gradients of rows begin to end - 1 by bin.
    void fill_histogram(Index begin, Index end, Sum* histogram) {
        std::fill_n(histogram, size_, Sum{});
        for (Index i = begin; i < end; ++i) {
            const std::int32_t row = rows_[static_cast<std::size_t>(i)];
            pairs_[static_cast<std::size_t>(i)] = {data_.gradient(row, output_), data_.curvature(row, output_)};
        }
        std::size_t k = 0;
        for (; k + TOGETHER <= columns_.size(); k += TOGETHER) histogram = add_rows<TOGETHER>(begin, end, k, histogram);
        for (; k < columns_.size(); ++k) histogram = add_rows<1>(begin, end, k, histogram);
    }

    // Add rows to the histograms of columns k to k + MANY - 1, and return where the next one begins. Several columns at
    // once need fewer loads, and their sums do not wait for each other.
    template <std::size_t MANY> Sum* add_rows(Index begin, Index end, std::size_t k, Sum* histogram) {
        const std::uint8_t* bins[MANY];
        Sum* cell[MANY];
        for (std::size_t j = 0; j < MANY; ++j) {
            bins[j] = data_.bins[columns_[k + j]], cell[j] = histogram;
            histogram += cells(columns_[k + j]);
        }
        for (Index i = begin; i < end; ++i) {
            const std::int32_t row = rows_[static_cast<std::size_t>(i)];
            const Sum pair = pairs_[static_cast<std::size_t>(i)];
            for (std::size_t j = 0; j < MANY; ++j) {
                Sum& sum = cell[j][bins[j][row]];
                sum.g += pair.g, sum.h += pair.h;
            }
        }
        return histogram;
    }

    // Split the nodes of a level, and prepare those of the next.
    void grow_level(Index level) {
        const Index nodes = Index{1} << level, first = nodes - 1;
        std::vector<Index> begin{0};
        std::vector<Sum> sums;
        std::vector<char> alive;
        spare_.resize(rows_.size());
        for (Index k = 0; k < nodes; ++k) {
            const auto at = static_cast<std::size_t>(k);
            const Cut cut = alive_[at] ? best_cut(histogram(slot_[at]), sums_[at]) : Cut{};
            Index middle = begin_[at + 1];
            if (cut.column >= 0) {
                write_split(first + k, cut);
                middle = partition(begin_[at], begin_[at + 1], cut);
                sums.push_back(cut.left), sums.push_back(cut.right);
            } else {
                std::copy(rows_.begin() + begin_[at], rows_.begin() + middle, spare_.begin() + begin_[at]);
                value_[2 * (first + k) + 1] = value_[2 * (first + k) + 2] = value_[first + k];
                sums.push_back(sums_[at]), sums.push_back({});
            }
            for (const Sum& sum : {sums[2 * at], sums[2 * at + 1]})
                alive.push_back(cut.column >= 0 && sum.h >= 2.0 * least_ * (1.0 - TIE) ? 1 : 0);
            begin.push_back(middle), begin.push_back(begin_[at + 1]);
        }
        std::swap(rows_, spare_);
        begin_ = begin, sums_ = sums, alive_ = alive;
        if (level + 1 == DEPTH) return;
        slot_.resize(sums.size());
        for (Index k = nodes - 1; k >= 0; --k) share_histogram(k);
    }

    // Make the histograms of node k of the level above those of its children. The larger child gets their place.
    void share_histogram(Index k) {
        const auto left = static_cast<std::size_t>(2 * k);
        const Index slot = slot_[static_cast<std::size_t>(k)];
        if (!alive_[left] && !alive_[left + 1]) return;
        const bool right_is_smaller = begin_[left + 2] - begin_[left + 1] < begin_[left + 1] - begin_[left];
        const std::size_t small = left + (right_is_smaller ? 1 : 0), large = left + (right_is_smaller ? 0 : 1);
        slot_[large] = slot, slot_[small] = alive_[large] ? used_ : slot;
        Sum *rest = histogram(slot), *some = histogram(slot_[small]);
        fill_histogram(begin_[small], begin_[small + 1], some);
        if (!alive_[large]) return;
        for (Index i = 0; i < size_; ++i) rest[i].g -= some[i].g, rest[i].h -= some[i].h;
        used_ += alive_[small];
    }

    Cut best_cut(const Sum* histogram, const Sum& all) const {
        Cut best;
        best.gain = all.g * all.g / (all.h + LAMBDA) * (1.0 + LEAST_GAIN) + LEAST_GAIN;
        for (const Index column : columns_) {
            const Sum missing = histogram[0];
            scan(histogram, all, missing, column, false, best);
            if (is_there(missing, all)) scan(histogram, all, missing, column, true, best);
            histogram += cells(column);
        }
        return best;
    }

    // Whether a sum has rows: a difference of histograms may leave rounding errors.
    static bool is_there(const Sum& some, const Sum& all) { return some.h > TIE * all.h; }

    // Improve the best cut by one of this column. `best.gain` is the sum of the scores of both children.
    void scan(const Sum* histogram, const Sum& all, const Sum& missing, Index column, bool missing_right,
              Cut& best) const {
        const Sum none, start = missing_right ? none : missing;
        const Index cuts = cuts_[static_cast<std::size_t>(column)];
        const Index at = forest_loops().best_cut(&histogram[1].g, cuts, &start.g, &all.g, least_, &best.gain);
        if (at < 0) return;
        Sum left = start;
        for (Index b = 1; b <= at + 1; ++b) left.g += histogram[b].g, left.h += histogram[b].h;
        const Sum right{all.g - left.g, all.h - left.h};
        // Without missing values, they would go to the larger child.
        const bool side = is_there(missing, all) ? missing_right : right.h > left.h * (1.0 + TIE);
        best = {best.gain, column, at, side, left, right};
    }

    void write_split(Index node, const Cut& cut) {
        place_[node] = static_cast<std::int32_t>(2 * cut.column + (cut.missing_right ? 1 : 0));
        cut_[node] = data_.cuts(cut.column, cut.number);
        const Sum all{cut.left.g + cut.right.g, cut.left.h + cut.right.h};
        gain_[node] = static_cast<float>(cut.gain - all.g * all.g / (all.h + LAMBDA));
        value_[2 * node + 1] = value_of(cut.left), value_[2 * node + 2] = value_of(cut.right);
    }

    // For each bin, 1 if its rows go right.
    using Sides = std::array<std::uint8_t, CELLS>;
    static Sides sides_of(Index cut, bool missing_right) {
        Sides sides{};
        for (Index b = cut + 2; b <= BINS; ++b) sides[static_cast<std::size_t>(b)] = 1;
        sides[0] = missing_right ? 1 : 0;
        return sides;
    }

    // Copy rows begin to end - 1 to the spare list, those on the left first, and return where the others begin.
    Index partition(Index begin, Index end, const Cut& cut) {
        const std::uint8_t* bins = data_.bins[cut.column];
        const Sides sides = sides_of(cut.number, cut.missing_right);
        std::int32_t *left = spare_.data() + begin, *right = others_.data();
        for (Index i = begin; i < end; ++i) {
            const std::int32_t row = rows_[static_cast<std::size_t>(i)];
            const Index side = sides[bins[row]];
            *left = *right = row;
            left += 1 - side, right += side;
        }
        std::copy(others_.data(), right, left);
        return left - spare_.data();
    }

    // Add the values of the leaves to the margins of all rows, also of those that the tree has not seen.
    void update_margins() {
        const std::uint8_t* bins[INNER];
        std::array<Sides, INNER> sides;
        for (std::size_t k = 0; k < sides.size(); ++k) {
            const Index column = place_[k] / 2;
            const double* cuts = data_.cuts[column];
            const bool split = cut_[k] < NOWHERE;
            bins[k] = data_.bins[column];
            sides[k] = split ? sides_of(std::lower_bound(cuts, cuts + BINS, cut_[k]) - cuts, place_[k] % 2 == 1) : Sides{};
        }
        for (Index i = 0; i < n_; ++i) {
            std::size_t node = 0;
            for (Index level = 0; level < DEPTH; ++level) node = 2 * node + 1 + sides[node][bins[node][i]];
            data_.margin(i, output_) += value_[node];
        }
    }
};

// Gradients and curvatures of all outputs of a row, for its weight.
void differentiate(const Boosting& data, Objective objective, double level, Index i) {
    const Index outputs = data.margin.cols;
    const double *margin = data.margin[i], y = data.y[static_cast<std::size_t>(i)];
    const double weight = data.weight[static_cast<std::size_t>(i)];
    double *g = data.gradient[i], *h = data.curvature[i];
    if (objective == Objective::softmax) {
        const double top = *std::max_element(margin, margin + outputs);
        double total = 0.0;
        for (Index k = 0; k < outputs; ++k) total += h[k] = std::exp(margin[k] - top);
        for (Index k = 0; k < outputs; ++k) {
            const double p = h[k] / total;
            g[k] = weight * (p - (static_cast<Index>(y) == k ? 1.0 : 0.0)), h[k] = weight * p * (1.0 - p);
        }
        return;
    }
    for (Index k = 0; k < outputs; ++k) {
        const double off = margin[k] - y;
        if (objective == Objective::logistic) {
            const double p = 1.0 / (1.0 + std::exp(-margin[k]));
            g[k] = p - y, h[k] = p * (1.0 - p);
        } else if (objective == Objective::counts) {
            h[k] = std::exp(std::min(margin[k], 30.0)), g[k] = h[k] - y;
        } else {
            g[k] = objective == Objective::squared ? std::clamp(off, -level, level) : (off > 0.0 ? 1.0 : 0.0) - level;
            h[k] = 1.0;
        }
        g[k] *= weight, h[k] *= weight;
    }
}

// Write a row twice: with missing values below and above all others.
void expand_row(const double* cells, Index columns, double* out) {
    for (Index j = 0; j < columns; ++j) {
        const bool missing = std::isnan(cells[j]);
        out[2 * j] = missing ? -NOWHERE : cells[j], out[2 * j + 1] = missing ? NOWHERE : cells[j];
    }
}

constexpr Index BLOCK = 64;  // rows that go through all trees together

}  // namespace

void bin_column(Span<const double> values, Span<std::uint8_t> bins, Span<double> cuts) {
    const auto n = static_cast<Index>(bins.size()), step = (n + SAMPLE - 1) / SAMPLE;
    std::vector<double> sorted;
    for (Index i = 0; i < n; i += step)
        if (const double x = values[static_cast<std::size_t>(i)]; !std::isnan(x)) sorted.push_back(x);
    std::sort(sorted.begin(), sorted.end());
    std::vector<double> different(sorted);
    different.erase(std::unique(different.begin(), different.end()), different.end());
    if (static_cast<Index>(different.size()) <= BINS) sorted = different;
    std::ranges::fill(cuts, NOWHERE);
    const auto many = static_cast<Index>(sorted.size());
    const Index parts = std::min({many, BINS, std::max<Index>(n / ROWS_PER_BIN, 2)});
    Index used = 0;
    for (Index k = 1; k < parts; ++k) {
        const Index at = k * many / parts;
        const double below = sorted[static_cast<std::size_t>(at - 1)], above = sorted[static_cast<std::size_t>(at)];
        if (below == above) continue;
        const double middle = below + (above - below) / 2.0, cut = middle < above ? middle : below;
        if (used == 0 || cut > cuts[static_cast<std::size_t>(used - 1)]) cuts[static_cast<std::size_t>(used++)] = cut;
    }
    for (Index i = 0; i < n; ++i) {
        const double x = values[static_cast<std::size_t>(i)];
        Index bin = 0;
        for (Index half = BINS / 2; half > 0; half /= 2)  // without branches
            bin += half * static_cast<Index>(x > cuts[static_cast<std::size_t>(bin + half - 1)]);
        bins[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(std::isnan(x) ? 0 : bin + 1);
    }
}

bool has_valid_bins(Matrix<const std::uint8_t> bins) {
    std::uint8_t most = 0;  // a loop without branches
    for (Index i = 0; i < bins.rows * bins.cols; ++i) most = std::max(most, bins.data[i]);
    return most <= BINS;
}

void grow(const Boosting& data, Objective objective, double level, const Trees& trees, Index first, Index last) {
    const Index outputs = data.margin.cols, n = data.bins.cols;
    Grower grower(data);
    for (Index t = first; t < last; ++t) {
        if (t % outputs == 0)
            for (Index i = 0; i < n; ++i) differentiate(data, objective, level, i);
        grower.grow(t % outputs, t, trees);
    }
}

void add_values(const Trees& trees, Span<const std::int32_t> column, Matrix<const double> cells, Matrix<double> sums,
                Matrix<std::int32_t> leaves) {
    const Index d = cells.cols, width = 2 * d;
    std::vector<double> both(static_cast<std::size_t>(std::min(BLOCK, cells.rows) * width));
    for (Index start = 0; start < cells.rows; start += BLOCK) {
        const Index many = std::min(BLOCK, cells.rows - start);
        for (Index i = 0; i < many; ++i) expand_row(cells[start + i], d, both.data() + i * width);
        forest_loops().add_values(trees, column.data(), both.data(), width, {sums[start], many, sums.cols, sums.stride},
                                  {leaves[start], many, leaves.cols, leaves.stride});
    }
}

namespace {

// Call visit(node, child) for the nodes on the path of a row through tree t.
template <class Visit> void walk(const Trees& trees, Index t, const std::vector<double>& x, Visit visit) {
    Index node = 0;
    for (Index level = 0; level < DEPTH; ++level) {
        const auto place = static_cast<std::size_t>(trees.place(t, node));
        const Index child = 2 * node + 1 + (x[place] > trees.cut(t, node) ? 1 : 0);
        visit(node, child);
        node = child;
    }
}

}  // namespace

void add_paths(const Trees& trees, Span<const std::int32_t> column, Matrix<const double> cells,
               Matrix<const double> factor, Matrix<double> parts) {
    std::vector<double> x(static_cast<std::size_t>(2 * cells.cols));
    for (Index i = 0; i < cells.rows; ++i) {
        expand_row(cells[i], cells.cols, x.data());
        for (Index t = 0; t < trees.place.rows; ++t) {
            const double times = factor(i, column[static_cast<std::size_t>(t)]), *value = trees.value[t];
            walk(trees, t, x, [&](Index node, Index child) {
                parts(i, trees.place(t, node) / 2) += times * (value[child] - value[node]);
            });
        }
    }
}

void divide_amounts(const Trees& trees, Matrix<const double> cells, Matrix<const double> amounts,
                    Matrix<double> parts) {
    std::vector<double> x(static_cast<std::size_t>(2 * cells.cols));
    for (Index i = 0; i < cells.rows; ++i) {
        expand_row(cells[i], cells.cols, x.data());
        for (Index t = 0; t < trees.place.rows; ++t) {
            double splits = 0.0;
            walk(trees, t, x, [&](Index node, Index) { splits += trees.cut(t, node) < NOWHERE ? 1.0 : 0.0; });
            walk(trees, t, x, [&](Index node, Index) {
                if (trees.cut(t, node) < NOWHERE) parts(i, trees.place(t, node) / 2) += amounts(i, t) / splits;
            });
        }
    }
}

}  // namespace robustfd
