//! peer-governor CASE: nanoseconds of one decision of the governor crate, the median of 1,000 batches of 1,000, to
//! standard output. Called by scripts/bench peers. CASE is CLOCK-ANSWER: CLOCK tsc (its default, quanta), kernel
//! (std::time::Instant) or given (a time that costs nothing to read), ANSWER allow or deny.
use governor::clock::{Clock, FakeRelativeClock, MonotonicClock, QuantaClock};
use governor::middleware::NoOpMiddleware;
use governor::{Quota, RateLimiter};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

fn median_ns<C: Clock>(clock: C, allow: bool) -> f64 {
    let most = NonZeroU32::new(if allow { u32::MAX } else { 1 }).unwrap();
    let quota = if allow {
        Quota::with_period(Duration::from_nanos(1)).unwrap().allow_burst(most)
    } else {
        Quota::with_period(Duration::from_secs(86400)).unwrap().allow_burst(most)
    };
    let limiter: RateLimiter<_, _, C, NoOpMiddleware<C::Instant>> = RateLimiter::direct_with_clock(quota, clock);
    let mut batches = Vec::new();
    if !allow {
        let _ = limiter.check();
    }
    for _ in 0..1000 {
        let begun = Instant::now();
        for _ in 0..1000 {
            assert!(black_box(limiter.check()).is_ok() == allow);
        }
        batches.push(begun.elapsed().as_nanos() as f64 / 1000.0);
    }
    batches.sort_by(|a, b| a.partial_cmp(b).unwrap());
    batches[500]
}

fn main() {
    let case = std::env::args().nth(1).unwrap_or_default();
    let allow = case.ends_with("-allow");
    let ns = match case.split('-').next() {
        Some("tsc") => median_ns(QuantaClock::default(), allow),
        Some("kernel") => median_ns(MonotonicClock, allow),
        Some("given") => median_ns(FakeRelativeClock::default(), allow),
        _ => std::process::exit(2),
    };
    println!("{ns:.1}");
}
