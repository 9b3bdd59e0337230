// A row is a channel: element e of it lies in image e / pixels.
fn place(channel: u32, e: u32) -> u32 {
    return (e / p.pixels * p.rows + channel) * p.pixels + e % p.pixels;
}

fn place_in(steps: vec3<u32>, channel: u32, e: u32) -> u32 {
    return e / p.pixels * steps.x + channel * steps.y + e % p.pixels * steps.z;
}

fn gradient(channel: u32, e: u32) -> f32 {
    return grad_at(place_in(vec3<u32>(p.grad_image, p.grad_channel, p.grad_pixel), channel, e));
}

fn input(channel: u32, e: u32) -> f32 {
    return x_at(place_in(vec3<u32>(p.x_image, p.x_channel, p.x_pixel), channel, e));
}

$KERNEL
fn main(grid: Grid) {
    $BEGIN
    let n = select(0u, p.count, exists);
    let at = select(0u, row, exists);
    let mean = mean_at(at);
    let invstd = invstd_at(at);
    var sum = 0.0;
    var sum_normal = 0.0;
    for (var e = lane; e < n; e += LANES) {
        let g = gradient(row, e);
        sum += g;
        sum_normal += g * (input(row, e) - mean) * invstd;
    }
    sum = sum_of(lane, sum);
    sum_normal = sum_of(lane, sum_normal);
    if ($WANTS_X) {
        let count = f32(p.count);
        let factor = invstd$WEIGHT;
        for (var e = lane; e < n; e += LANES) {
            var g = gradient(row, e);
            if ($TRAINING) {
                let normal = (input(row, e) - mean) * invstd;
                g = g - sum / count - normal * (sum_normal / count);
            }
            out_put(place(row, e), factor * g);
        }
    }
    if (lane == 0u && exists) {
        if ($WANTS_WEIGHT) { dweight_put(row, sum_normal); }
        if ($WANTS_BIAS) { dbias_put(row, sum); }
    }
}
