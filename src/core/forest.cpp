#include "forest.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

namespace robustfd {

namespace {

constexpr Index HISTOGRAMS = (Index{1} << (DEPTH - 1)) + 1;  // at most, with one that is dropped at once

// A pseudo-random number of a counter (Steele, Lea and Flood 2014), so that trees depend on nothing but the seed.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
    std::uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

Index number_of_cuts(const double* cuts) { return std::lower_bound(cuts, cuts + BINS, NOWHERE) - cuts; }

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
    Grower(const Boosting& data, const Trees& trees) : data_(data), trees_(trees), n_(data.bins.rows) {
        for (auto* some : {&rows_, &spare_, &others_}) some->resize(static_cast<std::size_t>(n_));
        std::vector<Index> sizes;
        for (Index j = 0; j < trees.cuts.rows; ++j) {
            cuts_.push_back(number_of_cuts(trees.cuts[j]));
            sizes.push_back(cells(j));
        }
        std::ranges::sort(sizes, std::greater<>());
        sizes.resize(std::min(sizes.size(), static_cast<std::size_t>(MOST_COLUMNS)));
        const Index largest = std::accumulate(sizes.begin(), sizes.end(), Index{0});
        histograms_ = std::make_unique_for_overwrite<Sum[]>(static_cast<std::size_t>(HISTOGRAMS * largest));
    }

    void grow(Index output, Index t) {
        place_ = trees_.place[t], limit_ = trees_.limit[t], value_ = trees_.value[t], gain_ = trees_.gain[t];
        output_ = output;
        std::fill_n(place_, INNER, 0), std::fill_n(limit_, INNER, UNSPLIT), std::fill_n(gain_, INNER, 0.0F);
        std::fill_n(value_, NODES, 0.0);
        choose_rows(t);
        choose_columns(t);
        gather_rows();
        start_root();
        for (Index level = 0; level < DEPTH; ++level) grow_level(level);
        update_margins();
    }

  private:
    const Boosting& data_;
    const Trees& trees_;
    Index n_, output_ = 0;
    std::vector<std::int32_t> rows_, spare_;   // of the nodes, one after the other
    std::vector<std::int32_t> others_;         // those on the right of a cut
    std::vector<std::int32_t> seen_, unseen_;  // the rows that the tree is grown from, and all others
    std::vector<std::uint8_t> bins_;           // of its rows and columns, times 2: places of sums in a histogram
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
    double least_ = LEAST;
    std::int32_t* place_ = nullptr;
    std::uint8_t* limit_ = nullptr;
    double* value_ = nullptr;
    float* gain_ = nullptr;

    Index cells(Index column) const { return cuts_[static_cast<std::size_t>(column)] + 2; }
    Sum* histogram(Index slot) { return histograms_.get() + slot * size_; }

    // A random half of the rows.
    void choose_rows(Index t) {
        seen_.resize(static_cast<std::size_t>(n_)), unseen_.resize(static_cast<std::size_t>(n_));
        const std::uint64_t seed = random_bits(data_.seed, static_cast<std::uint64_t>(t));
        std::size_t m = 0;
        for (Index i = 0; i < n_; i += 64) {
            std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(i));
            for (Index j = i; j < std::min(i + 64, n_); ++j, bits >>= 1) {
                seen_[m] = unseen_[static_cast<std::size_t>(j) - m] = static_cast<std::int32_t>(j);
                m += bits & 1;
            }
        }
        seen_.resize(m), unseen_.resize(static_cast<std::size_t>(n_) - m);
    }

    void choose_columns(Index t) {
        columns_.clear();
        for (Index j = 0; j < trees_.cuts.rows; ++j) {
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

    // Copy the numbers of the rows and columns of this tree, so that they are near each other.
    void gather_rows() {
        const std::size_t n = seen_.size(), columns = columns_.size();
        rows_.resize(n), pairs_.resize(n), bins_.resize(n * columns);
        std::iota(rows_.begin(), rows_.end(), 0);
        const Sum* sums = data_.sums(output_);
        std::uint8_t* to = bins_.data();
        for (std::size_t i = 0; i < n; ++i) {
            pairs_[i] = sums[seen_[i]];
            const std::uint8_t* from = data_.bins[seen_[i]];
            for (const Index column : columns_) *to++ = static_cast<std::uint8_t>(2 * from[2 * column]);
        }
    }

    void start_root() {
        size_ = 0, slot_.assign(1, 0), used_ = 1;
        for (const Index column : columns_) size_ += cells(column);
        const auto n = static_cast<Index>(rows_.size());
        fill_histogram(0, n, histogram(0));
        Sum all;
        const auto add = [&](const Sum& some) { all.g += some.g, all.h += some.h; };
        if (columns_.empty())
            std::ranges::for_each(pairs_, add);
        else
            std::for_each_n(histogram(0), cells(columns_[0]), add);
        sums_.assign(1, all), alive_.assign(1, 1), begin_ = {0, n};
        least_ = LEAST * std::min(1.0, 2.0 * all.h / std::max(static_cast<double>(n), 1.0));
        value_[0] = value_of(all);
    }

    static double value_of(const Sum& sum) { return -RATE * sum.g / (sum.h + LAMBDA); }

    // Sum the gradients of rows begin to end - 1 by bin.
    void fill_histogram(Index begin, Index end, Sum* histogram) {
        std::memset(static_cast<void*>(histogram), 0, static_cast<std::size_t>(size_) * sizeof(Sum));
        std::size_t k = 0;
        for (; k + 4 <= columns_.size(); k += 4) histogram = add_rows<4>(begin, end, k, histogram);
        for (; k + 2 <= columns_.size(); k += 2) histogram = add_rows<2>(begin, end, k, histogram);
        for (; k < columns_.size(); ++k) histogram = add_rows<1>(begin, end, k, histogram);
    }

    // Add rows to the histograms of columns k to k + MANY - 1, and return where the next one begins. Several columns at
    // once need fewer loads, and their sums do not wait for each other.
    template <std::size_t MANY> Sum* add_rows(Index begin, Index end, std::size_t k, Sum* histogram) {
        const std::uint8_t* first = bins_.data() + k;
        double* cell[MANY];
        for (std::size_t j = 0; j < MANY; ++j) {
            cell[j] = &histogram->g;
            histogram += cells(columns_[k + j]);
        }
        for (Index i = begin; i < end; ++i) {
            const auto row = static_cast<std::size_t>(rows_[static_cast<std::size_t>(i)]);
            const std::uint8_t* place = first + row * columns_.size();
            const Sum pair = pairs_[row];
            for (std::size_t j = 0; j < MANY; ++j) {
                double* sum = cell[j] + place[j];
                sum[0] += pair.g, sum[1] += pair.h;
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
                middle = partition(begin_[at], begin_[at + 1], first + k);
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
        forest_loops().subtract(&rest->g, &some->g, 2 * size_);
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
        const Index right = cut.missing_right ? 1 : 0;
        place_[node] = static_cast<std::int32_t>(2 * cut.column + right);
        limit_[node] = static_cast<std::uint8_t>(cut.number + 1 - right);
        const Sum all{cut.left.g + cut.right.g, cut.left.h + cut.right.h};
        gain_[node] = static_cast<float>(cut.gain - all.g * all.g / (all.h + LAMBDA));
        value_[2 * node + 1] = value_of(cut.left), value_[2 * node + 2] = value_of(cut.right);
    }

    // Copy rows begin to end - 1 to the spare list, those on the left first, and return where the others begin.
    Index partition(Index begin, Index end, Index node) {
        const auto k = std::ranges::lower_bound(columns_, place_[node] / 2) - columns_.begin();
        const std::uint8_t* place = bins_.data() + k;
        const int less = 2 * (place_[node] % 2), limit = 2 * limit_[node];
        std::int32_t *left = spare_.data() + begin, *right = others_.data();
        for (Index i = begin; i < end; ++i) {
            const std::int32_t row = rows_[static_cast<std::size_t>(i)];
            const auto at = static_cast<std::size_t>(row) * columns_.size();
            const Index side = static_cast<std::uint8_t>(place[at] - less) > limit ? 1 : 0;
            *left = *right = row;
            left += 1 - side, right += side;
        }
        std::copy(others_.data(), right, left);
        return left - spare_.data();
    }

    // Add the values of the leaves to the margins of all rows.
    void update_margins() {
        for (Index k = 0; k <= INNER; ++k)
            for (Index i = begin_[static_cast<std::size_t>(k)]; i < begin_[static_cast<std::size_t>(k + 1)]; ++i) {
                const auto row = static_cast<std::size_t>(rows_[static_cast<std::size_t>(i)]);
                data_.margin(seen_[row], output_) += value_[INNER + k];
            }
        for_leaves(place_, limit_, static_cast<Index>(unseen_.size()),
                   [&](Index k) { return data_.bins[unseen_[static_cast<std::size_t>(k)]]; },
                   [&](Index k, Index leaf) {
                       data_.margin(unseen_[static_cast<std::size_t>(k)], output_) += value_[leaf];
                   });
    }
};

// Gradients and curvatures of all outputs of a row of class y, for its weight.
void differentiate_classes(const Boosting& data, Index i) {
    const Index outputs = data.margin.cols;
    const double *margin = data.margin[i], y = data.y[static_cast<std::size_t>(i)];
    const double weight = data.weight[static_cast<std::size_t>(i)], top = *std::max_element(margin, margin + outputs);
    double total = 0.0;
    for (Index k = 0; k < outputs; ++k) total += data.sums(k)[i].h = std::exp(margin[k] - top);
    for (Index k = 0; k < outputs; ++k) {
        Sum& sum = data.sums(k)[i];
        const double p = sum.h / total;
        sum = {weight * (p - (static_cast<Index>(y) == k ? 1.0 : 0.0)), weight * p * (1.0 - p)};
    }
}

// The same for all rows of other losses; slope(margin, y) are both for weight 1.
template <class Slope> void differentiate_rows(const Boosting& data, Slope slope) {
    const Index n = data.margin.rows, outputs = data.margin.cols;
    for (Index k = 0; k < outputs; ++k)
        for (Index i = 0; i < n; ++i) {
            const double weight = data.weight[static_cast<std::size_t>(i)];
            const Sum sum = slope(data.margin(i, k), data.y[static_cast<std::size_t>(i)]);
            data.sums(k)[i] = {weight * sum.g, weight * sum.h};
        }
}

void differentiate(const Boosting& data, Objective objective, double level) {
    const Index n = data.margin.rows;
    if (objective == Objective::softmax)
        for (Index i = 0; i < n; ++i) differentiate_classes(data, i);
    if (objective == Objective::logistic)
        forest_loops().logistic(data.margin.data, data.y.data(), data.weight.data(), n, data.sums(0));
    if (objective == Objective::counts)
        differentiate_rows(data, [](double margin, double y) {
            const double mean = std::exp(std::min(margin, 30.0));
            return Sum{mean - y, mean};
        });
    if (objective == Objective::squared)
        differentiate_rows(data, [=](double margin, double y) {
            return Sum{std::max(std::min(margin - y, level), -level), 1.0};
        });
    if (objective == Objective::pinball)
        differentiate_rows(data, [=](double margin, double y) { return Sum{(margin > y ? 1.0 : 0.0) - level, 1.0}; });
}

constexpr Index BLOCK = 64;  // rows that go through all trees together

// Call see(first row, bins) for blocks of rows.
template <class See> void for_blocks(const Trees& trees, Matrix<const double> cells, See see) {
    const Index columns = trees.cuts.rows;  // the rows may have more
    std::vector<std::uint8_t> memory(static_cast<std::size_t>(std::min(BLOCK, cells.rows) * 2 * columns));
    for (Index start = 0; start < cells.rows; start += BLOCK) {
        const Matrix<std::uint8_t> bins{memory.data(), std::min(BLOCK, cells.rows - start), 2 * columns};
        forest_loops().bin_rows({cells[start], bins.rows, columns, cells.stride}, trees.cuts, bins);
        see(start, Matrix<const std::uint8_t>{bins});
    }
}

// Call visit(row, t, node, child) for the nodes on the paths of rows through all trees.
template <class Visit> void for_paths(const Trees& trees, Matrix<const double> cells, Visit visit) {
    for_blocks(trees, cells, [&](Index start, Matrix<const std::uint8_t> bins) {
        for (Index i = 0; i < bins.rows; ++i)
            for (Index t = 0; t < trees.place.rows; ++t)
                for (Index node = 0, child; node < INNER; node = child) {
                    child = child_of(trees.place[t], trees.limit[t], node, bins[i]);
                    visit(start + i, t, node, child);
                }
    });
}

}  // namespace

void bin_column(Matrix<const double> cells, Index j, Matrix<double> cuts, Matrix<std::uint8_t> bins) {
    const Index n = cells.rows, step = (n + SAMPLE - 1) / SAMPLE;
    std::vector<double> sorted;
    for (Index i = 0; i < n; i += step)
        if (const double x = cells(i, j); !std::isnan(x)) sorted.push_back(x);
    std::sort(sorted.begin(), sorted.end());
    std::vector<double> different(sorted);
    different.erase(std::unique(different.begin(), different.end()), different.end());
    if (static_cast<Index>(different.size()) <= BINS) sorted = different;
    double* own = cuts[j];
    std::fill_n(own, BINS, NOWHERE);
    const auto many = static_cast<Index>(sorted.size());
    const Index parts = std::min({many, BINS, std::max<Index>(n / ROWS_PER_BIN, 2)});
    Index used = 0;
    for (Index k = 1; k < parts; ++k) {
        const Index at = k * many / parts;
        const double below = sorted[static_cast<std::size_t>(at - 1)], above = sorted[static_cast<std::size_t>(at)];
        if (below == above) continue;
        const double middle = below + (above - below) / 2.0, cut = middle < above ? middle : below;
        if (used == 0 || cut > own[used - 1]) own[used++] = cut;
    }
    forest_loops().bin_rows({cells.data + j, n, 1, cells.stride}, {own, 1, BINS}, {bins.data + 2 * j, n, 2, bins.stride});
}

bool has_valid_bins(Matrix<const std::uint8_t> bins, Matrix<const double> cuts) {
    std::vector<std::uint8_t> most(static_cast<std::size_t>(bins.cols));
    std::uint8_t wrong = 0;
    for (Index i = 0; i < bins.rows; ++i) {  // without branches
        const std::uint8_t* row = bins[i];
        std::transform(row, row + bins.cols, most.begin(), most.begin(), [](auto a, auto b) { return std::max(a, b); });
        for (Index k = 0; k < bins.cols; k += 2) wrong |= static_cast<std::uint8_t>(row[k] - 1) ^ row[k + 1];
    }
    for (Index j = 0; j < cuts.rows; ++j)
        if (most[static_cast<std::size_t>(2 * j)] > number_of_cuts(cuts[j]) + 1) return false;
    return wrong == 0;
}

void grow(const Boosting& data, Objective objective, double level, const Trees& trees, Index first, Index last) {
    const Index outputs = data.margin.cols;
    Grower grower(data, trees);
    for (Index t = first; t < last; ++t) {
        if (t % outputs == 0) differentiate(data, objective, level);
        grower.grow(t % outputs, t);
    }
}

void add_values(const Trees& trees, Span<const std::int32_t> column, Matrix<const double> cells, Matrix<double> sums,
                Matrix<std::int32_t> leaves) {
    for_blocks(trees, cells, [&](Index start, Matrix<const std::uint8_t> bins) {
        for (Index t = 0; t < trees.place.rows; ++t)
            forest_loops().add_tree(trees, t, bins,
                                    {&sums(start, column[static_cast<std::size_t>(t)]), bins.rows, 1, sums.stride},
                                    {&leaves(start, t), bins.rows, 1, leaves.stride});
    });
}

void add_paths(const Trees& trees, Span<const std::int32_t> column, Matrix<const double> cells,
               Matrix<const double> factor, Matrix<double> parts) {
    for_paths(trees, cells, [&](Index i, Index t, Index node, Index child) {
        const double times = factor(i, column[static_cast<std::size_t>(t)]);
        parts(i, trees.place(t, node) / 2) += times * (trees.value(t, child) - trees.value(t, node));
    });
}

void divide_amounts(const Trees& trees, Matrix<const double> cells, Matrix<const double> amounts,
                    Matrix<double> parts) {
    std::vector<Index> path;  // the nodes of a row in a tree that are split
    for_paths(trees, cells, [&](Index i, Index t, Index node, Index child) {
        if (trees.limit(t, node) != UNSPLIT) path.push_back(node);
        if (child < INNER) return;
        const double part = amounts(i, t) / static_cast<double>(path.size());
        for (const Index split : path) parts(i, trees.place(t, split) / 2) += part;
        path.clear();
    });
}

}  // namespace robustfd
