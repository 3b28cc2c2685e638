//! Rates of flows at constant rates through a queue with classes, against their closed form.

use cellbed_link::*;
use proptest::prelude::*;

/// A flow of one class: IP bytes of its packets, its offered rate over the link's, and the weight of the class.
#[derive(Clone, Debug)]
struct Flow {
    size: u64,
    offered: f64,
    weight: Option<u16>,
}

fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let weight = prop_oneof![1 => Just(None), 2 => (1..10u16).prop_map(Some)];
    let flow = (100..1500u64, 0.1..1.5f64, weight);
    let flow = flow.prop_map(|(size, offered, weight)| Flow {
        size,
        offered,
        weight,
    });
    prop::collection::vec(flow, 2..5)
}

/// Returns the share of the link of each flow: strict classes in order, then the rest by weights (max-min fairness).
fn expected(flows: &[Flow]) -> Vec<f64> {
    let mut shares = vec![0.0; flows.len()];
    let mut rest: f64 = 1.0;
    for (share, flow) in shares.iter_mut().zip(flows) {
        if flow.weight.is_none() {
            *share = flow.offered.min(rest);
            rest -= *share;
        }
    }
    let mut open: Vec<usize> = (0..flows.len())
        .filter(|&it| flows[it].weight.is_some())
        .collect();
    let weight = |&it: &usize| f64::from(flows[it].weight.unwrap_or_default());
    while !open.is_empty() {
        let level = rest / open.iter().map(weight).sum::<f64>();
        let met = |it: &usize| flows[*it].offered <= level * weight(it);
        let (met, others): (Vec<usize>, Vec<usize>) = open.iter().partition(|it| met(it));
        if met.is_empty() {
            others
                .iter()
                .for_each(|it| shares[*it] = level * weight(it));
            break;
        }
        for it in met {
            shares[it] = flows[it].offered;
            rest -= shares[it];
        }
        open = others;
    }
    shares
}

#[test]
fn dscp_of_the_source_comes_before_that_of_the_destination_and_the_packets_own() {
    let graph = Graph::<()>::new(GraphConfig::default(), Time::ZERO).unwrap();
    let graph = graph.with_marks(vec![Some(46), None, Some(10)]);
    let tag = Tag {
        flow: 7,
        ecn: Ecn::Ect0,
        dscp: 8,
    };
    for (source, destination, dscp) in [(0, 2, 46), (2, 0, 10), (1, 2, 10), (1, 1, 8), (9, 9, 8)] {
        assert_eq!(graph.mark(source, destination, tag), Tag { dscp, ..tag });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn classes_divide_a_link_by_priority_and_weight(flows in flows(), megabits in 1..20u64) {
        let rate = megabits * 1_000_000;
        let classes = flows.iter().zip(1..).map(|(flow, dscp)| {
            serde_json::json!({"dscp": [dscp], "weight": flow.weight, "packets": 50})
        });
        let queue = serde_json::json!({"kind": "classes", "classes": Vec::from_iter(classes)});
        let queue: Discipline = serde_json::from_value(queue).unwrap();
        let bottleneck = BottleneckConfig::new(Schedule::Constant(BitRate(rate))).with_queue(queue);
        let mut direction = Direction::new(vec![bottleneck.into()], Time::ZERO);
        let bytes = rate as f64 / 8.0 * 10.0;
        let mut packets: Vec<(u64, usize)> = Vec::new();
        for (number, flow) in flows.iter().enumerate() {
            let count = (flow.offered * bytes / flow.size as f64) as u64;
            packets.extend((0..count).map(|it| (it * 10_000_000_000 / count, number)));
        }
        packets.sort();
        for (at, number) in packets {
            let tag = Tag { dscp: number as u8 + 1, ..Tag::default() };
            direction.accept_tagged(Time::from_nanos(at), number, Bytes(flows[number].size), tag);
        }
        let mut sent = vec![0.0; flows.len()];
        while let Some(outcome) = direction.poll(Time::from_millis(10_000)) {
            if outcome.fate == Fate::Delivered {
                sent[outcome.packet] += outcome.size.0 as f64 / bytes;
            }
        }
        for (sent, expected) in sent.iter().zip(expected(&flows)) {
            // The packets that wait at the end: 50 of 1500 bytes in a class.
            prop_assert!((sent - expected).abs() < 0.01 + 50.0 * 1500.0 / bytes, "{sent} {expected}");
        }
    }
}
