    let h = head % p.h;
    let hk = h / (p.h / p.hk);
    let q_base = place(b, h, 0u, 0u, p.q_strides);
    let k_base = place(b, hk, 0u, 0u, p.k_strides);
    let v_base = place(b, hk, 0u, 0u, p.v_strides);
    let grad_base = place(b, h, 0u, 0u, p.grad_strides);
    let lse$i = logsumexp_at(head * p.t + row$i);
    let delta$i = delta_at(head * p.t + row$i);
