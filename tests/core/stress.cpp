// The core without Python, for sanitizers: hostile text, extreme rows, growing features and classes, damaged states,
// and threads that read and learn. It prints what it did, and ends with a sanitizer's report or 0. Run: stress SECONDS
// [CORPUS], where the files of CORPUS are inputs that a fuzzer has found. With RFD_FUZZ this is the target of that
// fuzzer, libFuzzer.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "blend.hpp"
#include "calibration.hpp"
#include "experts.hpp"
#include "forest.hpp"
#include "lock.hpp"
#include "scan.hpp"
#include "text.hpp"
#include "tracker.hpp"

namespace {

using namespace robustfd;

// Random choices, the first of which an input may make.
class Random {
  public:
    using result_type = std::uint64_t;
    explicit Random(std::string input = {}) : input_(std::move(input)), given_(!input_.empty()) {}
    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return ~result_type{0}; }
    result_type operator()() {
        if (at_ >= input_.size()) return generator_();
        return static_cast<unsigned char>(input_[at_++]);
    }
    bool given() const { return given_; }
    std::string rest() { return input_.substr(std::exchange(at_, input_.size())); }

  private:
    std::string input_;
    bool given_;
    std::size_t at_ = 0;
    std::mt19937_64 generator_{2026};
};

Index below(Random& random, Index n) { return static_cast<Index>(random() % static_cast<std::uint64_t>(n)); }

// ------------------------------------------------------------------------------------------------------ text

std::string hostile_text(Random& random) {
    if (random.given()) return random.rest() + "\n";
    static const std::vector<std::string> pieces = {
        "1",     "-1",  "+1",   "0:",  ":",      "1:1",    "3:-2e-3", "7:1e999", "9:1e-999",  "99999999999999999999:1",
        "a:2",   "|",   "|a",   "|a:", "|a:2",   "#",      "qid:1",   "'tag",    "nan",       "2:inf",
        "\"",    "\"\"", ",",   ";",   "\t",     "\r",     "\n",      "\n",      "\n",        " ",
        " ",     " ",   "0x1p3", "1_0", "4:.5",  "5:5.",   "6:.",     "1:2:3",   "\xff\xfe",  std::string(1, '\0'),
        "12345678901234567890123456789.5e-20", "2147483646:1", "2147483647:1", "-0:1",
        "1:-1:0.5", "2:1:1.5", "0:.5:1", "shared", "shared |a", "\n\n", "|"};
    std::string text;
    for (Index n = below(random, 60); n > 0; --n) {
        if (below(random, 12) == 0)
            text += static_cast<char>(below(random, 256));
        else
            text += pieces[static_cast<std::size_t>(below(random, static_cast<Index>(pieces.size())))];
        if (below(random, 3) == 0) text += ' ';
    }
    return text + "\n";
}

// A copy with exactly the size of the text, so that a sanitizer notices a byte read after its end.
void read_text(Random& random) {
    const bool hashed = below(random, 2);
    const ParseOptions options{below(random, 2) == 1, below(random, 2),
                               hashed             ? Index{256}
                               : below(random, 3) ? 50
                                                  : -1,
                               hashed ? 8 : -1, below(random, 2) == 1};
    const bool zero_based = below(random, 2), sorted = below(random, 2);
    const Letter delimiter = ",;\t"[below(random, 3)];
    const std::string made = hostile_text(random);
    const std::vector<Letter> bytes(made.begin(), made.end());
    const Text text(bytes.data(), bytes.size());
    parse_libsvm(text, options);
    scan_libsvm(text, zero_based, sorted, 5);
    const Group groups[] = {{'a', -1}, {ANY_SPACE, -1}};
    parse_vw(text, options, groups);
    parse_actions(text, options);
    parse_blocks(text, options);
    find_records(text, delimiter, 100);
    last_record_end(text, delimiter);
    const std::array<bool, 3> keep{true, false, true};
    copy_fields(text, delimiter, keep, '\x1f');
    if (below(random, 100) > 0) return;
    const auto path = std::filesystem::temp_directory_path() / "robustfd-stress";
    std::ofstream(path, std::ios::binary) << made;
    for (FileScan scan(path, 5); scan.advance(1);) {}
    std::filesystem::remove(path);
}

// ------------------------------------------------------------------------------------------- the untuned learner

constexpr Index L = 4;

// Experts as Python starts them.
Experts experts(Index d, Index outputs, bool numbers, Index memories) {
    const Index rungs = memories ? memories + 2 : 0;  // three of the slow memory
    Experts e;
    const Index bettors = numbers ? 0 : outputs == 1 ? 4 : 1, plain = 2 * (L + bettors), size = d + 1;
    const Index all = plain + rungs * L;
    e.table = Array<Feature>(size), e.totals = Array<Totals>(1), e.centred = Array<Index>(0);
    e.centre = Array<double>(CENTRE_ROWS, 0);
    e.totals[0] = {0, 1, 0, 0, 1, 1, 1, 0.2, 1, 0, 0};
    e.table[0].inverse = 1, e.table[0].prior = 0.2;
    e.rate = Array<double>(all), e.linear = Array<double>(all), e.fast = Array<double>(all);
    for (Index k = 0; k < all; ++k) e.rate[k] = 1 << 2 * (k % L), e.linear[k] = k % 2, e.fast[k] = k / L % 2;
    e.share = Array<double>(outputs, all), e.plain = Array<double>(outputs, plain), e.earned = Array<double>(all);
    e.steady = Array<double>(outputs, all);
    for (double& x : Span<double>(e.share)) x = 1.0 / static_cast<double>(all);
    for (double& x : Span<double>(e.steady)) x = 1.0 / static_cast<double>(all);
    for (double& x : Span<double>(e.plain)) x = 1.0 / static_cast<double>(plain);
    e.follow = Array<double>(outputs, 2, FOLLOWERS), e.trace = Array<double>(WINDOWS), e.targets = Array<Targets>(1);
    for (Index c = 0; c < outputs; ++c) std::copy_n(FOLLOW_SHARE, FOLLOWERS, e.follow.plane(c)[1]);
    e.level = Array<double>(outputs);
    if (numbers && outputs > 1)
        for (Index c = 0; c < outputs; ++c) e.level[c] = static_cast<double>(c + 1) / static_cast<double>(outputs + 1);
    e.targets[0] = {numbers, 0, 0, 8, 0, 1, LARGEST_TARGET, -LARGEST_TARGET, 0, 0, 1, 0, 0, 2, 0, 0};
    e.weights = Array<float>(size, 2 * padded(outputs * L));
    if (bettors) e.bets = Array<float>(size, 4, outputs * bettors);
    if (memories) {
        const Index wide = padded(size);
        e.inverse = Array<double>(rungs, size, wide), e.past = Array<double>(memories, size, size);
        e.block = Array<double>(size, wide), e.exact_weights = Array<double>(size, rungs * outputs * L);
        e.ladder = Array<double>(rungs);
        for (Index r = 0; r < rungs; ++r) {
            e.ladder[r] = r < 3 ? std::pow(0.03, r) : 1.0;
            for (Index i = 0; i < size; ++i) e.inverse.plane(r)(i, i) = 1;
        }
    }
    return e;
}

double extreme(Random& random) {
    static const double odd[] = {0.0, 1.0, -1.0, 1e150, -1e150, 1e-150, 5e-324, 1e30, 3.5, 0.1};
    return below(random, 3) ? std::normal_distribution<double>()(random) : odd[below(random, 10)];
}

// Rows in CSR form, in vectors of exactly their size.
struct Made {
    std::vector<double> data, y, weight, out;
    std::vector<std::int32_t> indices;
    std::vector<Index> indptr{0};
    Rows rows() const { return {data.data(), indices.data(), indptr.data(), static_cast<Index>(y.size()), 0}; }
};

Made make_rows(Random& random, Index n, Index d, Index outputs, bool numbers) {
    Made made;
    for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < d; ++j)
            if (below(random, 3) == 0) {
                made.data.push_back(below(random, 40) == 0 ? NAN : extreme(random));
                made.indices.push_back(static_cast<std::int32_t>(j));
            }
        made.indptr.push_back(static_cast<Index>(made.data.size()));
        made.y.push_back(numbers ? extreme(random) : static_cast<double>(below(random, std::max<Index>(outputs, 2))));
        made.weight.push_back(below(random, 10) ? 1.0 : std::abs(extreme(random)) + 1e-9);
    }
    made.out.resize(static_cast<std::size_t>(n * outputs));
    return made;
}

void learn(Experts& e, const Made& made) {
    const Rows rows = made.rows();
    rows.check(e.features(), 0, rows.count);
    const Scratch scratch(e, rows.longest(0, rows.count));
    std::vector<double> out(made.out), readings(made.out);
    untuned_loops().learn(e, scratch.work, rows, 0, rows.count, made.y.data(), made.weight.data(), out.data(),
                          readings.data(), Lesson::fresh);
    untuned_loops().read(e, scratch.work, rows, out.data());
}

// Bytes of all arrays, to compare states.
std::string bytes_of(Experts& e) {
    std::string bytes;
    Experts::visit([&](const char*, auto& array) {
        bytes.append(reinterpret_cast<const char*>(array.data()),
                     static_cast<std::size_t>(array.size()) * sizeof(array[0]));
    }, e);
    return bytes;
}

void learn_untuned(Random& random) {
    const Index d = 1 + below(random, 20), outputs = below(random, 2) ? 1 : 3, memories = below(random, 3);
    const bool numbers = below(random, 2);  // of several outputs: quantiles
    Experts e = experts(d, outputs, numbers, memories);
    e.check();
    learn(e, make_rows(random, 30, d, outputs, numbers));
    const Made more = make_rows(random, 10, d, outputs, numbers);
    const std::string before = bytes_of(e);
    const Kept kept(e, 10, more.indices, below(random, 2));
    learn(e, more);
    if (memories) try {
            e.renew_exact(0.9);
        } catch (const std::runtime_error&) {  // a Hessian of extreme rows may be singular
        }
    kept.restore(e);
    if (bytes_of(e) != before) throw std::logic_error("restoring a state changed it");
    const Experts copy = e;
    learn(e, more);
}

// Calibrations and thresholds stay finite for any margins, targets and weights.
void track_rows(Random& random) {
    std::vector<double> share(FIRST_SHARE, FIRST_SHARE + MAPS), both(2 * GRID), one(GRID);
    std::vector<Window> trace(TRACE), of_sets(TRACE);
    std::vector<Lean> leans(2 * PAIRS);
    Tracked numbers{0, 0, 0, 0, 0, 1}, labels{0, 0, 0, 0, 0, 1};
    const Tracker tracker{{{both.data(), 2, GRID}, leans.data()}, numbers, trace.data()};
    for (Index n = below(random, 600); n > 0; --n) {
        const double weight = std::abs(extreme(random)) + 1e-9;
        const double chance = recalibrate(share.data(), extreme(random), weight), chances[2] = {chance, 1.0 - chance};
        const double quantiles[2 * PAIRS] = {extreme(random), extreme(random), extreme(random), extreme(random)};
        tracker.number(extreme(random), extreme(random), std::abs(extreme(random)), quantiles, weight, -INFINITY);
        track_label(below(random, 2), chances, 2, weight, one.data(), labels, of_sets.data());
    }
    for (const Lean& lean : leans) one.insert(one.end(), {lean.weight, lean.usual});
    for (const auto& some : {share, both, one})
        for (const double x : some)
            if (!std::isfinite(x)) throw std::logic_error("a share, a threshold or a weight is not finite");
}

// Trees of any rows have finite values, and rows go through them to a leaf; shares of blends stay finite.
void grow_trees(Random& random) {
    const Index n = 1 + below(random, 300), d = 1 + below(random, 40), outputs = 1 + below(random, 3), count = 6;
    std::vector<double> cells(static_cast<std::size_t>(n * d)), cuts(static_cast<std::size_t>(d * BINS));
    for (double& cell : cells) cell = below(random, 9) == 0 ? NAN : below(random, 2) ? extreme(random) : 1.0;
    std::vector<std::uint8_t> bins(static_cast<std::size_t>(2 * d * n));
    for (Index j = 0; j < d; ++j) bin_column({cells.data(), n, d}, j, {cuts.data(), d, BINS}, {bins.data(), n, 2 * d});
    if (!has_valid_bins({bins.data(), n, 2 * d}, {cuts.data(), d, BINS})) throw std::logic_error("a bin is out of range");
    const Objective of_one[] = {Objective::logistic, Objective::squared, Objective::pinball, Objective::counts};
    const auto objective = outputs > 1 ? Objective::softmax : of_one[below(random, 4)];
    std::vector<double> y, weight, margin(static_cast<std::size_t>(n * outputs));
    for (Index i = 0; i < n; ++i) {
        y.push_back(static_cast<double>(below(random, std::max<Index>(outputs, 2))));
        weight.push_back(std::min(std::abs(extreme(random)), 1e3));
    }
    std::vector<double> gradient(static_cast<std::size_t>(2 * n * outputs)), value(count * NODES), sums(margin);
    std::vector<std::int32_t> owner(static_cast<std::size_t>(d), -1), place(count * INNER), column(count);
    std::vector<std::int32_t> leaves(static_cast<std::size_t>(n * count));
    std::vector<std::uint8_t> limit(count * INNER);
    std::vector<float> gain(count * INNER);
    for (Index t = 0; t < count; ++t) column[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t % outputs);
    const Trees trees{{cuts.data(), d, BINS}, {place.data(), count, INNER}, {limit.data(), count, INNER},
                      {value.data(), count, NODES}, {gain.data(), count, INNER}};
    grow({{bins.data(), n, 2 * d}, owner, y, weight, {margin.data(), n, outputs}, {gradient.data(), outputs, 2 * n},
          random()}, objective, 0.5, trees, 0, count);
    add_values(trees, column, {cells.data(), n, d}, {sums.data(), n, outputs}, {leaves.data(), n, count});
    for (const double x : sums)
        if (!std::isfinite(x)) throw std::logic_error("a sum of leaves is not finite");
    std::vector<double> parts(static_cast<std::size_t>(n * d)), amounts(static_cast<std::size_t>(n * count), 1.0);
    add_paths(trees, column, {cells.data(), n, d}, {sums.data(), n, outputs}, {parts.data(), n, d});
    divide_amounts(trees, {cells.data(), n, d}, {amounts.data(), n, count}, {parts.data(), n, d});
    std::vector<double> share(2, 0.5), steady(share), losses(2), both(margin), out(static_cast<std::size_t>(outputs));
    both.insert(both.end(), sums.begin(), sums.end());
    std::vector<double> labels(2, 0.5);
    Blended all{};
    const Blend state{share, labels, steady, all};
    for (Index i = 0; i < n; ++i)
        blend_row(objective, 0.5, both.data() + i * outputs, n * outputs, outputs, y[static_cast<std::size_t>(i)],
                  weight[static_cast<std::size_t>(i)] + 1e-9, state, losses, out.data());
    if (!std::isfinite(share[0]) || !std::isfinite(steady[1])) throw std::logic_error("a share is not finite");
}

// A state with damaged numbers and shapes is refused, or learning from it stays inside its arrays.
void learn_damaged(Random& random) {
    const Index d = 1 + below(random, 8);
    Experts e = experts(d, 1, false, below(random, 2));
    learn(e, make_rows(random, 10, d, 1, false));
    const Index which = below(random, 28);
    Index place = 0;
    Experts::visit([&](const char*, auto& array) {
        if (place++ != which) return;
        using Element = std::remove_reference_t<decltype(array[0])>;
        if (below(random, 2) && array.size()) {
            auto* bytes = reinterpret_cast<unsigned char*>(array.data());
            for (int i = 0; i < 8; ++i)
                bytes[below(random, array.size() * static_cast<Index>(sizeof(Element)))] =
                    static_cast<unsigned char>(random());
        } else {
            array = below(random, 2) ? Array<Element>(below(random, 9))
                                     : Array<Element>(below(random, 4), below(random, 9));
        }
    }, e);
    try {
        e.check();
    } catch (const std::invalid_argument&) {
        return;
    }
    learn(e, make_rows(random, 3, e.features(), e.outputs(), e.targets[0].numbers));
}

// ------------------------------------------------------------------------------------------------- threads

// Threads that learn and read one model under its lock.
void meet_in_one_model(Random& random) {
    constexpr Index D = 12;
    Experts e = experts(D, 1, false, 1);
    Lock lock;
    const Made made = make_rows(random, 20, D, 1, false);
    const auto enter = [&](Lock::Use use) {
        if (lock.try_enter(use)) return;
        const unsigned long ticket = lock.queue();
        while (!lock.wait(ticket, use, std::chrono::milliseconds(5))) {
        }
    };
    const auto read = [&] {
        for (int i = 0; i < 20; ++i) {
            enter(Lock::Use::read);
            const Scratch scratch(e, D);
            std::vector<double> out(made.out);
            untuned_loops().read(e, scratch.work, made.rows(), out.data());
            lock.leave();
        }
    };
    const auto write = [&] {
        for (int i = 0; i < 20; ++i) {
            enter(Lock::Use::write);
            learn(e, made);
            lock.leave();
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back(read);
    for (int i = 0; i < 2; ++i) threads.emplace_back(write);
    for (std::thread& thread : threads) thread.join();
}

const std::vector<std::pair<const char*, std::function<void(Random&)>>> JOBS = {
    {"text", read_text}, {"untuned", learn_untuned}, {"damaged", learn_damaged}, {"threads", meet_in_one_model},
    {"tracker", track_rows}, {"trees", grow_trees}};

// The first byte of an input chooses one of the first three jobs.
void run_input(const std::string& input) {
    if (input.empty()) return;
    Random random(input.substr(1));
    JOBS[static_cast<unsigned char>(input[0]) % 3].second(random);
}

}  // namespace

#ifdef RFD_FUZZ

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    run_input(std::string(reinterpret_cast<const char*>(bytes), size));
    return 0;
}

#else

int main(int count, char** arguments) {
    const double seconds = count > 1 ? std::atof(arguments[1]) : 5.0;
    long inputs = 0;
    if (count > 2)
        for (const auto& file : std::filesystem::directory_iterator(arguments[2])) {
            std::ifstream stream(file.path(), std::ios::binary);
            run_input({std::istreambuf_iterator<char>(stream), {}});
            ++inputs;
        }
    std::printf("corpus   %ld inputs\n", inputs);
    Random random;
    for (const auto& [name, job] : JOBS) {
        const std::chrono::duration<double> time(seconds / static_cast<double>(JOBS.size()));
        const auto end = std::chrono::steady_clock::now() + time;
        long runs = 0;
        for (; runs == 0 || std::chrono::steady_clock::now() < end; ++runs) job(random);
        std::printf("%-8s %ld runs\n", name, runs);
        std::fflush(stdout);
    }
}

#endif
