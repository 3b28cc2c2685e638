//! Effects of the managed queues on senders with congestion control, in virtual time: the tables of
//! `docs/reference/disciplines.md`.
//!
//! `cargo run --release -p cellbed-link --example disciplines`

#[path = "../tests/behaviour/closed_loop/mod.rs"]
mod closed_loop;

use cellbed_link::*;
use closed_loop::{Control, Flow, Span, run};

fn main() {
    codel();
    pie();
    red();
    adaptive_red();
    fq_codel();
    dualpi2();
}

fn mbit(rate: u64) -> BitRate {
    BitRate(rate * 1_000_000)
}

fn table(title: &str, columns: &str) {
    println!("\n{title}\n\n| {columns} |");
    println!("|{}", "---|".repeat(columns.split(" | ").count()));
}

fn codel() {
    table(
        "CoDel, Reno flows, 20 to 60 s: the least delay of each 200 ms (its median over all), delays, use of the link",
        "Mbit/s | RTT, ms | flows | standing, ms | median, ms | p95, ms | dropped | used",
    );
    let queue = Discipline::CoDel(CoDelConfig::default());
    for rate in [2, 10, 50] {
        for round_trip in [20, 50, 100] {
            for flows in [1, 4] {
                let senders = vec![Flow::new(Control::Reno, round_trip); flows];
                let run = run(&queue, mbit(rate), &senders, 60);
                let span = run.between(20, 60);
                let standing = span.standing(Duration::from_millis(200));
                println!(
                    "| {rate} | {round_trip} | {flows} | {standing:.1} | {:.1} | {:.1} | {:.3} % | {:.1} % |",
                    span.delay_quantile(0.5),
                    span.delay_quantile(0.95),
                    span.dropped() * 100.0,
                    span.utilisation() * 100.0,
                );
            }
        }
    }
}

fn pie() {
    table(
        "PIE, 10 Mbit/s, Reno flows of 100 ms that come and go at each step; delays of each 5 s",
        "from, s | flows | mean delay, ms | p95, ms | dropped | used",
    );
    let queue = Discipline::Pie(PieConfig::default());
    let run = run(&queue, mbit(10), &Flow::varying(), 150);
    for from in (0..150).step_by(5) {
        let active = [10, 30, 50, 30, 10][from as usize / 30];
        let span = run.between(from, from + 5);
        println!(
            "| {from} | {active} | {:.1} | {:.1} | {:.2} % | {:.1} % |",
            span.mean_delay(),
            span.delay_quantile(0.95),
            span.dropped() * 100.0,
            span.utilisation() * 100.0,
        );
    }
}

fn red() {
    table(
        "RED (15 and 45 kB, max_p 0.1, gentle), 10 Mbit/s, a sender that never reacts: the drop probability's curve",
        "load | dropped | average queue, kB | p_b by the curve there | dropped by the curve",
    );
    let queue = RedConfig::new(Bytes(15_000), Bytes(45_000));
    for load in [1.02, 1.05, 1.1, 1.18, 1.4, 2.0] {
        let sender = Flow::new(Control::Constant(BitRate((load * 10e6) as u64)), 0);
        let run = run(&Discipline::Red(queue.clone()), mbit(10), &[sender], 120);
        let span = run.between(40, 120);
        let average = span.mean_delay() * 1.25 - 0.75; // kB; half of the packet in service is not queued
        let p_b = match average {
            _ if average < 45.0 => 0.1 * (average - 15.0) / 30.0,
            _ => 0.1 + 0.9 * (average - 45.0) / 45.0,
        };
        let longer = (0..).map(|k| 1.0 - f64::from(k) * p_b / (1.0 - p_b));
        let gap: f64 = longer.take_while(|&longer| longer > 0.0).sum();
        println!(
            "| {load} | {:.2} % | {average:.1} | {p_b:.4} | {:.2} % |",
            span.dropped() * 100.0,
            100.0 / gap
        );
    }
}

fn adaptive_red() {
    table(
        "RED and Adaptive RED (18.75 and 56.25 kB), 15 Mbit/s, Reno flows of 50 ms, 60 to 120 s; the target is 33.75 to 41.25 kB",
        "flows | average with RED, kB | with Adaptive RED, kB | used",
    );
    let (minimum, maximum) = (Bytes(18_750), Bytes(56_250));
    let plain = RedConfig::new(minimum, maximum);
    let adaptive = RedConfig {
        adaptive: true,
        ..plain.clone()
    };
    for flows in [4, 8, 20, 50, 80] {
        let [plain, adaptive] = [&plain, &adaptive].map(|queue| {
            let flows = vec![Flow::new(Control::Reno, 50); flows];
            let run = run(&Discipline::Red(queue.clone()), mbit(15), &flows, 120);
            let span = run.between(60, 120);
            (span.mean_delay() * 15.0 / 8.0, span.utilisation())
        });
        println!(
            "| {flows} | {:.1} | {:.1} | {:.1} % |",
            plain.0,
            adaptive.0,
            adaptive.1 * 100.0
        );
    }
}

fn fq_codel() {
    table(
        "FQ-CoDel, 10 Mbit/s, 20 to 60 s",
        "flow | Mbit/s | mean delay, ms | p99, ms",
    );
    let names = [
        "Reno, 10 ms",
        "Reno, 50 ms",
        "Reno, 20 ms, packets of 500 bytes",
        "Reno, 10 ms",
        "100 bytes every 20 ms",
    ];
    let queue = Discipline::FqCoDel(FqCoDelConfig::default());
    let run = run(&queue, mbit(10), &Flow::unequal(), 60);
    let span = run.between(20, 60);
    for (flow, name) in names.iter().enumerate() {
        let span = span.of(|other| other == flow);
        println!(
            "| {name} | {:.3} | {:.2} | {:.2} |",
            span.throughput(),
            span.mean_delay(),
            span.delay_quantile(0.99)
        );
    }
}

fn dualpi2() {
    table(
        "DualPI2, as many Reno as Prague flows, 40 to 120 s",
        "flows of each | Mbit/s | RTT, ms | L4S : Classic | L mean, ms | L p99, ms | C mean, ms | p_L | 2 √p_C | used",
    );
    let queue = Discipline::DualPi2(DualPi2Config::default());
    for count in [1, 4] {
        for rate in [12, 40, 120] {
            for round_trip in [5, 10, 20, 50, 100] {
                let run = run(&queue, mbit(rate), &Flow::coupled(count, round_trip), 120);
                let span = run.between(40, 120);
                let (classic, low): (Span, Span) =
                    (span.of(|flow| flow < count), span.of(|flow| flow >= count));
                println!(
                    "| {count} | {rate} | {round_trip} | {:.2} | {:.2} | {:.2} | {:.1} | {:.4} | {:.4} | {:.1} % |",
                    low.throughput() / classic.throughput(),
                    low.mean_delay(),
                    low.delay_quantile(0.99),
                    classic.mean_delay(),
                    low.marked(),
                    2.0 * classic.dropped().sqrt(),
                    span.utilisation() * 100.0,
                );
            }
        }
    }
}
