use super::*;

fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = Frame {
        kind,
        flags,
        payload: payload.to_vec(),
        op: "test",
        object: String::new(),
    };
    frame.encode(sequence, &mut out).unwrap();
    out
}

#[test]
fn datagram_splits_into_padded_messages() {
    let mut bytes = message(16, 0, 7, &[1, 2, 3]);
    bytes.extend(message(17, 0, 8, &[]));
    let messages = split(&bytes).unwrap();
    assert_eq!(
        messages.iter().map(|m| m.sequence).collect::<Vec<_>>(),
        [7, 8]
    );
    let Body::Object(reply) = &messages[0].body else {
        panic!("{messages:?}")
    };
    assert_eq!(
        *reply,
        Reply {
            kind: 16,
            payload: vec![1, 2, 3]
        }
    );
}

#[test]
fn error_carries_errno_and_explanation() {
    let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
    payload.extend([0; HEADER]);
    payload.extend([7, 0, 1, 0, b'n', b'o', 0, 0]);
    let bytes = message(NLMSG_ERROR, F_CAPPED | F_ACK_TLVS, 1, &payload);
    let messages = split(&bytes).unwrap();
    let Body::Ack(Some(Reason::Refused { errno, message })) = &messages[0].body else {
        panic!("{messages:?}")
    };
    assert_eq!((*errno, message.as_deref()), (libc::EINVAL, Some("no")));
}

#[test]
fn broken_datagrams_are_refused_not_read_past() {
    let whole = message(16, 0, 1, &[0; 8]);
    for cut in 1..whole.len() {
        assert!(split(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let mut lying = whole.clone();
    lying[0..4].copy_from_slice(&3u32.to_ne_bytes());
    assert!(split(&lying).is_err());
}

#[test]
fn acknowledgement_of_success_is_no_error() {
    let bytes = message(NLMSG_ERROR, 0, 1, &[0; 20]);
    assert!(matches!(split(&bytes).unwrap()[0].body, Body::Ack(None)));
}
