// A lock for many readers or one writer. Threads enter in the order in which they came, so neither readers nor writers
// starve. A thread that holds the lock may take it again. Its outermost use decides: a method that only reads may call
// others that would enter alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace robustfd {

class Lock {
  public:
    enum class Use { read, write };

    // Enter if nobody has to wait; return whether this thread is inside.
    bool try_enter(Use use) {
        const std::scoped_lock inside(mutex_);
        return enter_again() || (queue_.empty() && enter(use));
    }

    // Join the queue; the ticket is for `wait` and `leave_queue`.
    unsigned long queue() {
        const std::scoped_lock inside(mutex_);
        queue_.push_back(next_);
        return next_++;
    }

    // Wait for this thread's turn, at most for `patience`; return whether it is inside.
    bool wait(unsigned long ticket, Use use, std::chrono::milliseconds patience) {
        std::unique_lock inside(mutex_);
        const bool entered =
            changed_.wait_for(inside, patience, [&] { return queue_.front() == ticket && enter(use); });
        if (entered) {
            queue_.pop_front();
            changed_.notify_all();
        }
        return entered;
    }

    void leave_queue(unsigned long ticket) {
        const std::scoped_lock inside(mutex_);
        std::erase(queue_, ticket);
        changed_.notify_all();
    }

    void leave() {
        const std::scoped_lock inside(mutex_);
        const auto me = std::this_thread::get_id();
        if (writer_ == me && writes_ > 0) {
            if (--writes_ == 0) writer_ = {};
        } else {
            leave_as_reader(me);
        }
        if (!queue_.empty()) changed_.notify_all();
    }

    // In a child process only this thread exists.
    void after_fork() {
        new (&mutex_) std::mutex;
        new (&changed_) std::condition_variable;
        queue_.clear();
        const auto me = std::this_thread::get_id();
        std::erase_if(readers_, [&](const Reader& reader) { return reader.thread != me; });
        if (writer_ != me) writer_ = {}, writes_ = 0;
    }

  private:
    struct Reader {
        std::thread::id thread;
        int times;
    };

    bool enter_again() {
        const auto me = std::this_thread::get_id();
        if (writes_ > 0 && writer_ == me) return ++writes_;
        for (Reader& reader : readers_)
            if (reader.thread == me) return ++reader.times;
        return false;
    }
    bool enter(Use use) {
        if (writes_ > 0 || (use == Use::write && !readers_.empty())) return false;
        if (use == Use::write)
            writer_ = std::this_thread::get_id(), writes_ = 1;
        else
            readers_.push_back({std::this_thread::get_id(), 1});
        return true;
    }
    void leave_as_reader(std::thread::id me) {
        for (std::size_t i = 0; i < readers_.size(); ++i)
            if (readers_[i].thread == me) {
                if (--readers_[i].times == 0) readers_.erase(readers_.begin() + static_cast<std::ptrdiff_t>(i));
                return;
            }
        throw std::logic_error("released a lock that this thread does not hold");
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<unsigned long> queue_;
    unsigned long next_ = 0;
    std::thread::id writer_;
    int writes_ = 0;
    std::vector<Reader> readers_;
};

}  // namespace robustfd
