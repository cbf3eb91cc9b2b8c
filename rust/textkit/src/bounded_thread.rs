//! Work on untrusted input, on a thread whose stack, memory and time are bounded.
//!
//! A Rust allocation that fails ends the process, and the template engine has operations whose
//! result cannot be bounded beforehand (a list repeated a billion times, then made a string). So
//! the library's allocator counts what such a thread allocates. A thread that goes over its budget
//! cannot be unwound from inside the allocator; it is put to sleep for good, with what it holds,
//! and its caller gets an error. The same happens to a thread that is still at work after its
//! time: it stops at its next allocation. Callers must therefore not repeat what ended that way.

use crate::error::{catch_panics, TextError, TextResult};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub struct Bounds {
    pub stack_bytes: usize,
    pub memory_bytes: usize,
    pub time: Duration,
}

const RUNNING: u8 = 0;
const FINISHED: u8 = 1;
const OVER_MEMORY: u8 = 2;
const OVER_TIME: u8 = 3;

struct Watch {
    state: AtomicU8,
    waiter: Thread,
}

/// What a bounded thread may still allocate. The watch is kept alive by the thread's closure.
#[derive(Clone, Copy)]
struct Budget {
    bytes: isize,
    watch: *const Watch,
}

thread_local! {
    // Without a destructor, so that the allocator may read it at any time in a thread's life.
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Takes `bytes` off this thread's budget, if it has one; does not return when it is exceeded.
#[inline]
fn charge(bytes: isize) {
    let _ = BUDGET.try_with(|cell| {
        if let Some(mut budget) = cell.get() {
            budget.bytes -= bytes;
            cell.set(Some(budget));
            // SAFETY: the watch outlives the budget, see `run`.
            let watch = unsafe { &*budget.watch };
            if bytes > 0 && (budget.bytes < 0 || watch.state.load(Ordering::Relaxed) != RUNNING) {
                sleep_for_good(watch);
            }
        }
    });
}

#[cold]
fn sleep_for_good(watch: &Watch) -> ! {
    let exchange =
        watch.state.compare_exchange(RUNNING, OVER_MEMORY, Ordering::Release, Ordering::Relaxed);
    if exchange.is_ok() {
        watch.waiter.unpark();
    }
    loop {
        std::thread::park();
    }
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: everything is the system allocator's; this one only counts.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(signed(layout.size()));
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(signed(layout.size()));
        System.alloc_zeroed(layout)
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        charge(signed(size) - signed(layout.size()));
        System.realloc(pointer, layout, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        charge(-signed(layout.size()));
        System.dealloc(pointer, layout);
    }
}

pub enum Outcome<T> {
    Done(TextResult<T>),
    /// The thread was given up: `what` it went over.
    GivenUp(&'static str),
}

/// Runs `body` on a thread of its own and waits for it.
pub fn run<T: Send + 'static>(
    bounds: Bounds,
    body: impl FnOnce() -> TextResult<T> + Send + 'static,
) -> Outcome<T> {
    let watch = Arc::new(Watch { state: AtomicU8::new(RUNNING), waiter: std::thread::current() });
    let result: Arc<Mutex<Option<TextResult<T>>>> = Arc::new(Mutex::new(None));
    let (their_watch, their_result) = (watch.clone(), result.clone());
    let spawned = Builder::new()
        .name("octavo-template".to_string())
        .stack_size(bounds.stack_bytes)
        .spawn(move || {
            let bytes = signed(bounds.memory_bytes);
            BUDGET.set(Some(Budget { bytes, watch: Arc::as_ptr(&their_watch) }));
            let outcome = catch_panics(body);
            BUDGET.set(None);
            if let Ok(mut slot) = their_result.lock() {
                *slot = Some(outcome);
            }
            // Also when the caller has given up meanwhile, and will not look.
            their_watch.state.store(FINISHED, Ordering::Release);
            their_watch.waiter.unpark();
        });
    if let Err(error) = spawned {
        let message = format!("cannot start a thread for a template: {error}");
        return Outcome::Done(Err(TextError::exhausted(message)));
    }
    let deadline = Instant::now() + bounds.time;
    loop {
        let state = watch.state.load(Ordering::Acquire);
        if state == FINISHED {
            let outcome = result.lock().ok().and_then(|mut slot| slot.take());
            let lost = || Err(TextError::internal("a template thread ended without a result"));
            return Outcome::Done(outcome.unwrap_or_else(lost));
        }
        if state == OVER_MEMORY {
            return Outcome::GivenUp("memory");
        }
        let now = Instant::now();
        if now >= deadline {
            let exchange = watch.state.compare_exchange(
                RUNNING,
                OVER_TIME,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if exchange.is_ok() {
                return Outcome::GivenUp("time");
            }
            continue;
        }
        std::thread::park_timeout(deadline - now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { stack_bytes: 1 << 20, memory_bytes: 16 << 20, time: Duration::from_secs(20) };

    #[test]
    fn results_and_errors_come_back() {
        let ask = |body: fn() -> TextResult<i32>| match run(BOUNDS, body) {
            Outcome::Done(result) => result,
            Outcome::GivenUp(what) => panic!("gave up for {what}"),
        };
        assert_eq!(ask(|| Ok(7)).unwrap(), 7);
        assert_eq!(ask(|| Err(TextError::invalid("no"))).unwrap_err().message, "no");
        // Memory that is given back does not count.
        assert!(ask(|| {
            (0..100).for_each(|i| drop(std::hint::black_box(vec![i as u8; 8 << 20])));
            Ok(0)
        })
        .is_ok());
    }

    #[test]
    fn too_much_memory_or_time_is_given_up() {
        let vast =
            run(BOUNDS, || Ok(std::hint::black_box(Vec::<u8>::with_capacity(1 << 40)).len()));
        assert!(matches!(vast, Outcome::GivenUp("memory")));
        let growing = run(BOUNDS, || {
            let mut list = Vec::new();
            loop {
                list.push(String::from("a string that lies on the heap"));
            }
            #[allow(unreachable_code)]
            Ok(list.len())
        });
        assert!(matches!(growing, Outcome::GivenUp("memory")));
        let slow = Bounds { time: Duration::from_millis(50), ..BOUNDS };
        let endless = run(slow, || {
            loop {
                drop(std::hint::black_box(Box::new(1)));
            }
            #[allow(unreachable_code)]
            Ok(())
        });
        assert!(matches!(endless, Outcome::GivenUp("time")));
    }
}
