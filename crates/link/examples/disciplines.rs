#[path = "../tests/closed_loop/mod.rs"]
mod closed_loop;
use cellbed_link::*;
use closed_loop::*;
fn main() {
    let codel = Discipline::CoDel(CoDelConfig::default());
    for rate in [2, 10, 50] {
        for rtt in [20, 50, 100] {
            for n in [1, 4] {
                let flows = vec![Flow::new(Control::RENO, rtt); n];
                let r = run(&codel, BitRate(rate * 1_000_000), &[], &flows, 60);
                let s = r.between(20, 60);
                println!(
                    "codel {rate} Mbit/s {rtt} ms {n} flows: median {:.2} mean {:.2} p95 {:.2} util {:.3} drop {:.5}",
                    s.delay_quantile(0.5),
                    s.mean_delay(),
                    s.delay_quantile(0.95),
                    s.utilisation(),
                    s.dropped()
                );
            }
        }
    }
    let pie = Discipline::Pie(PieConfig::default());
    let mut flows = vec![];
    for i in 0..50 {
        let (a, b) = if i < 10 {
            (0, 250)
        } else if i < 30 {
            (50, 200)
        } else {
            (100, 150)
        };
        flows.push(Flow::new(Control::RENO, 100).during(a, b));
    }
    let r = run(&pie, BitRate(10_000_000), &[], &flows, 250);
    for k in 0..5 {
        let s = r.between(k * 50 + 10, k * 50 + 50);
        println!(
            "pie varying {k}: mean {:.2} median {:.2} p95 {:.2} util {:.3} drop {:.4}",
            s.mean_delay(),
            s.delay_quantile(0.5),
            s.delay_quantile(0.95),
            s.utilisation(),
            s.dropped()
        );
    }
    let dual = Discipline::DualPi2(DualPi2Config::default());
    for rate in [4, 12, 40, 120] {
        for rtt in [5, 10, 20, 50, 100] {
            let flows = vec![
                Flow::new(Control::RENO, rtt),
                Flow::new(Control::PRAGUE, rtt).with_ecn(Ecn::Ect1),
            ];
            let r = run(&dual, BitRate(rate * 1_000_000), &[], &flows, 60);
            let s = r.between(20, 60);
            let (c, l) = (s.of(|f| f == 0), s.of(|f| f == 1));
            println!(
                "dual {rate} Mbit/s {rtt} ms: L/C {:.2} predicted {:.2}, L delay {:.3} p99 {:.3} C {:.2}, pL {:.4} 2sqrt(pC) {:.4} util {:.3}",
                l.throughput() / c.throughput(),
                (rtt as f64 + c.mean_delay()) / (1.22 * (rtt as f64 + l.mean_delay())),
                l.mean_delay(),
                l.delay_quantile(0.99),
                c.mean_delay(),
                l.marked(),
                2.0 * c.dropped().sqrt(),
                s.utilisation()
            );
        }
    }
}
