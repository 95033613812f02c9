//! A reserved port belongs to its test until it is dropped.

use std::collections::BTreeSet;
use std::net::TcpListener;

use berth_harness::ports::{Port, RANGE};

#[test]
fn reserved_ports_differ_and_can_be_listened_on() {
    let ports: Vec<Port> = (0..50).map(|_| Port::reserve()).collect();
    let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
    assert_eq!(numbers.len(), ports.len());
    for port in &ports {
        assert!(RANGE.contains(&port.number()));
        TcpListener::bind(port.address()).unwrap();
    }
}
