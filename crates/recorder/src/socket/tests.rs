use std::net::SocketAddr;

use cellbed_link::Duration;

use super::*;
use crate::wire::ip_overhead;

fn pair(address: &str) -> (Socket, Socket) {
    let bind = || {
        Socket::bind(&Local {
            address: address.parse().unwrap(),
            interface: None,
        })
        .unwrap()
    };
    (bind(), bind())
}

/// Receives until `count` packets have arrived. Returns payloads, senders and arrival times.
fn collect(socket: &Socket, count: usize) -> Vec<(Vec<u8>, SocketAddr, Time)> {
    let mut inbox = Inbox::default();
    let mut packets = Vec::new();
    let deadline = now() + Duration::from_secs(20);
    while packets.len() < count {
        assert!(now() < deadline, "only {} packets came", packets.len());
        wait(&[(socket.as_fd(), PollFlags::IN)], deadline).unwrap();
        socket.receive(&mut inbox).unwrap();
        packets.extend(
            inbox
                .packets()
                .map(|packet| (packet.bytes.to_vec(), packet.from, packet.arrived)),
        );
    }
    assert_eq!(inbox.take_overflows(), 0);
    packets
}

#[test]
fn a_batch_arrives_in_order_with_stamps_between_sending_and_now() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (one, other) = pair(address);
        let mut outbox = Outbox::default();
        // Two runs of equal packets, segmented by the kernel, and one odd packet between.
        let lengths: Vec<usize> = [vec![1372; 100], vec![40], vec![500; 3]].concat();
        for (index, length) in lengths.iter().enumerate() {
            outbox.push(other.local(), |bytes| {
                bytes.resize(bytes.len() + length, index as u8);
            });
        }
        let before = now();
        assert_eq!(one.send(&mut outbox).unwrap(), 0);
        assert!(outbox.is_empty());
        let packets = collect(&other, 104);
        let after = now();
        for (index, (bytes, from, arrived)) in packets.iter().enumerate() {
            assert_eq!(bytes, &vec![index as u8; lengths[index]]);
            assert_eq!(*from, one.local());
            // The two clocks cannot be read at the same instant.
            let error = Duration::from_millis(5);
            assert!(before - error <= *arrived && *arrived <= after + error);
        }
    }
}

#[test]
fn a_socket_for_both_families_hears_and_answers_ipv4() {
    let both = Socket::bind(&Local {
        address: "[::]:0".parse().unwrap(),
        interface: None,
    })
    .unwrap();
    let (four, _) = pair("127.0.0.1:0");
    let port = both.local().port();
    let mut outbox = Outbox::default();
    outbox.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), |bytes| {
        bytes.extend_from_slice(b"question");
    });
    four.send(&mut outbox).unwrap();
    let (question, from, _) = collect(&both, 1).remove(0);
    assert_eq!(
        (question.as_slice(), from),
        (b"question".as_slice(), four.local())
    );
    assert_eq!(ip_overhead(from.ip()), 28);
    outbox.push(from, |bytes| bytes.extend_from_slice(b"answer"));
    both.send(&mut outbox).unwrap();
    assert_eq!(collect(&four, 1)[0].0, b"answer");
}

#[test]
fn a_peer_without_a_way_to_it_loses_packets_and_stops_nothing() {
    let bound = Socket::bind(&Local {
        address: "0.0.0.0:0".parse().unwrap(),
        interface: Some("lo".into()),
    });
    let Ok(bound) = bound else {
        return; // old kernel, unprivileged user
    };
    let mut outbox = Outbox::default();
    let nowhere = "240.0.0.1:9".parse().unwrap(); // reserved, without a route
    for _ in 0..3 {
        outbox.push(nowhere, |bytes| bytes.extend_from_slice(&[0; 200]));
    }
    assert!(bound.send(&mut outbox).unwrap() <= 3);
}

#[test]
fn a_packet_that_no_interface_takes_is_named_and_the_others_leave() {
    let (one, other) = pair("127.0.0.1:0");
    let mut outbox = Outbox::default();
    for length in [100, 100, 65_508, 90] {
        outbox.push(other.local(), |bytes| bytes.resize(bytes.len() + length, 0));
    }
    let error = one.send(&mut outbox).unwrap_err().to_string();
    assert!(error.contains("65508 bytes"), "{error}");
    assert!(outbox.is_empty());
    let packets = collect(&other, 3);
    let lengths: Vec<_> = packets.iter().map(|(bytes, ..)| bytes.len()).collect();
    assert_eq!(lengths, [100, 100, 90]);
}
