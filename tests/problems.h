// The problems that every backend's algorithms are tested on.
//
// CONVLAB_TEST_REDUCED=1 keeps a share of the tests (for sanitizers); CONVLAB_TEST_SEED=N draws
// other random problems.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "conv/error.h"
#include "conv/problem.h"

namespace convlab {

inline bool reduced() { return std::getenv("CONVLAB_TEST_REDUCED") != nullptr; }

inline std::uint64_t random_problems_seed() {
  const char* const variable = std::getenv("CONVLAB_TEST_SEED");
  return variable ? std::strtoull(variable, nullptr, 10) : 20260101;
}

// One for each kind of difficulty. The name says which.
inline const std::vector<std::string>& problem_texts() {
  static const std::vector<std::string> texts{
      R"(mb1ic1ih1oc1oh1kh1ph0n"one_of_everything")",
      R"(mb2ic16ih8oc32oh8kh3ph1n"whole_blocks")",
      R"(mb2ic5ih7iw9oc7oh7ow9kh3kw3ph1pw1n"ragged_channels")",
      R"(mb1ic3ih23iw21oc19oh12ow11kh7kw7sh2sw2ph3pw3n"first_layer")",
      R"(mb1ic3ih35oc24oh8kh11sh4ph2n"alexnet_first_layer")",
      R"(mb1ic40ih1oc24oh1kh3ph1n"one_pixel_3x3")",
      R"(mb3ic33ih1oc17oh1kh1ph0n"one_pixel_1x1")",
      R"(mb1ic8ih2oc8oh4kh5ph3n"filter_larger_than_image")",
      R"(mb1ic4ih3iw50oc6oh3ow50kh1kw5ph0pw2n"wide_and_flat")",
      R"(mb1ic6ih31iw3oc9oh31ow3kh5kw1ph2pw0n"tall_and_narrow")",
      R"(mb2ic16iw41oc24ow41kw5pw4n"causal_row")",
      R"(mb1ic32iw60oc32ow60kw3pw8dw3n"causal_dilated_row")",
      R"(mb2ic20iw230oc17ow230kw9pw8n"causal_long_row")",
      R"(mb1ic16iw90oc33ow45kw4sw2pw3n"causal_strided_row")",
      R"(g2mb1ic32iw70oc32ow70kw5pw8dw1n"causal_dilated_groups_of_whole_blocks")",
      R"(g21mb2ic21iw50oc21ow50kw7pw6n"causal_depthwise_row")",
      R"(mb2ic17ih6iw40oc19oh6ow40kh1kw7ph0pw3n"rows_of_an_image")",
      R"(mb2ic18ih11iw13oc10oh6ow5kh3kw3sh2sw3ph1pw2n"asymmetric_strides")",
      R"(mb1ic9ih8iw8oc12oh8ow8kh4kw4ph1pw2n"even_filter_asymmetric_pads")",
      R"(mb1ic16ih9oc16oh9kh3ph2n"bottom_padding_below_top")",
      R"(mb1ic17ih14oc20oh7kh1sh2ph0n"pointwise_stride_2")",
      R"(mb2ic12ih10oc8oh4kh1sh3ph0n"stride_leaves_input_unread")",
      R"(mb1ic32ih14oc48oh7kh3sh2ph1n"downsampling")",
      R"(mb1ic10ih15iw17oc11oh15ow15kh3kw3dh1dw2ph2pw2n"dilated")",
      R"(mb1ic4ih16oc4oh6kh3sh2dh2ph1n"dilated_and_strided")",
      R"(mb2ic20ih13iw15oc18oh13ow9kh3dh1dw2ph2pw0n"dilated_with_pads_to_match")",
      R"(g2mb2ic12ih9oc10oh9kh3ph1n"two_ragged_groups")",
      R"(g4mb1ic64ih7oc128oh7kh3ph1n"groups_of_whole_blocks")",
      R"(g3mb1ic48ih6oc24oh6kh1ph0n"grouped_pointwise")",
      R"(g3mb2ic96ih9iw8oc48oh9ow8kh3ph1n"groups_of_whole_blocks_in_a_batch")",
      R"(g10mb2ic40ih9iw15oc40oh9ow15kh3ph1n"ragged_groups_of_four")",
      R"(g5mb1ic40ih13oc40oh7kh3sh2ph1n"ragged_groups_of_eight_strided")",
      R"(g9mb3ic18ih7oc18oh5kh3kw2dh1dw0ph1pw0n"groups_of_two_dilated")",
      R"(g19mb2ic19ih8oc38oh4kh3sh2ph1n"two_filters_a_channel")",
      R"(g24mb2ic24ih10oc24oh10kh3ph1n"depthwise")",
      R"(g37mb1ic37ih11oc37oh6kh5sh2ph2n"depthwise_ragged_strided")",
      R"(g20mb2ic20ih23iw19oc20oh23ow19kh13kw9ph6pw4n"depthwise_large_filter")",
      R"(g8mb1ic8ih9oc24oh9kh3dh1ph2n"depthwise_multiplier_dilated")",
      R"(g18mb2ic18ih11iw13oc36oh6ow7kh3kw3sh2sw2ph1pw1n"depthwise_multiplier_strided")",
      R"(mb1ic24ih12oc16oh12kh5ph2n"five_by_five")",
      R"(mb2ic64ih5oc64oh5kh1ph0n"even_pointwise")",
      R"(mb2ic16ih21oc16oh21kh3ph1n"several_tiles")",
      R"(mb1ic20ih33iw34oc18oh31ow32kh3ph0n"no_padding")",
      R"(mb5ic3ih6oc4oh6kh3ph1n"batch_above_threads")",
      R"(mb1ic130ih6oc70oh6kh3ph1n"many_channels")",
      R"(mb1ic256ih7oc72oh7kh1ph0n"deep_pointwise")",
      R"(mb2ic16ih1iw8oc16oh2ow8kh3kw3sh8sw1ph5pw1n"padding_only")",
      R"(g16mb1ic16ih2iw9oc16oh2ow9kh3kw3sh8sw1ph6pw1n"depthwise_padding_only")",
  };
  return texts;
}

// The same with depth.
inline const std::vector<std::string>& depth_problem_texts() {
  static const std::vector<std::string> texts{
      R"(mb2ic16id5ih8oc32kd3kh3pd1ph1n"depth")",
      R"(mb1ic5id4ih7iw9oc7kd3kh3kw3pd1ph1n"depth_ragged_channels")",
      R"(mb3ic40id2ih6oc24kd3kh3pd1ph1n"depth_more_images_than_slices")",
      R"(mb1ic17id6oc20kd3pd1n"depth_cube")",
      R"(mb1ic32id5ih6oc16od5kd3kh3pd2ph1n"depth_causal")",
      R"(mb2ic18id7ih9oc32kd3kh3sd2sh2pd1ph1n"depth_strides")",
      R"(mb1ic32id9ih6oc32od7oh6kd3kh3dd2pd2ph1n"depth_dilated")",
      R"(mb1ic32id3ih5oc32od6kd1kh3pd2ph1n"depth_slices_of_padding")",
      R"(mb2ic32id6ih6oc48kd1kh1sd2sh2pd0ph0n"depth_pointwise_strides")",
      R"(mb2ic32id6ih5oc24kd3kh1pd1ph0n"depth_of_taps_only")",
      R"(mb2ic32id7ih7oc24od5oh5kd3kh3pd0ph0n"depth_no_padding")",
      R"(mb1ic3id5ih21oc20kd3kh7sd1sh2pd1ph3n"depth_first_layer")",
      R"(g2mb1ic64id4ih6oc64kd3kh3pd1ph1n"depth_groups")",
      R"(g24mb2ic24id4ih8oc24kd3kh3pd1ph1n"depth_depthwise")",
      R"(g36mb1ic36id5ih9oc36kd3kh3sd1sh2pd1ph1n"depth_depthwise_strided")",
      R"(g3mb2ic96id4ih7iw6oc48kd3kh3kw3pd1ph1n"depth_groups_of_whole_blocks")",
      R"(g10mb2ic40id3ih7oc40kd3kh3sh2pd1ph1n"depth_groups_of_four")",
      R"(mb2ic32id5ih9oc32kd3kh3dd1dh1pd2ph2n"depth_dilated_in_all_dimensions")",
      R"(g2mb1ic64id4ih9oc32kd3kh3dh2pd1ph3n"depth_groups_dilated_rows")",
      R"(g54mb1ic54id4ih12oc54kd3kh3pd1ph1n"depth_x3d")",
      R"(g54mb2ic54id3ih12oc54kd3kh3sd1sh2pd1ph1n"depth_x3d_strided")",
      R"(g20mb2ic20id3ih11oc20kd3kh7pd1ph3n"depth_depthwise_large_filter")",
      R"(g12mb1ic12id5ih7oc24od3kd3kh3sd2pd0ph1dd0n"depth_depthwise_multiplier_strided")",
      R"(g2mb1ic20id9ih6iw7oc12od4kd3kh3sd2sh2pd2ph1dd1n"depth_groups_strided_dilated_depth")",
      R"(mb1ic16id1ih7oc16od2kd2kh3pd1ph1n"depth_from_one_slice")",
      R"(mb2ic32id1ih6oc16od2kd3kh3sd8sh1pd5ph1n"depth_of_padding_only")",
      R"(mb1ic5id2ih7oc7od2kd1kh3sd6sh1pd3ph1n"depth_of_padding_only_one_tap")",
      R"(mb1ic64id4ih14oc64kd3kh3pd1ph1n"depth_many_channels")",
  };
  return texts;
}

// With depth from problem_texts().size() on.
inline NamedProblem test_problem(std::size_t i) {
  const std::size_t flat = problem_texts().size();
  return parse_problem(i < flat ? problem_texts()[i] : depth_problem_texts()[i - flat]);
}

// The same without epilogue and accumulation.
inline ConvProblem unfinished(ConvProblem p) {
  p.epilogue = {};
  p.accumulate = false;
  return p;
}

// A small valid problem. Ranges are chosen so that about half of the draws are unusual in some way.
inline ConvProblem random_problem(std::mt19937_64& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (;;) {
    ConvProblem p;
    p.pass = all_passes[std::size_t(draw(0, 2))];
    p.dtype = draw(0, 3) == 0 ? DType::f64 : DType::f32;
    p.groups = draw(0, 2) == 0 ? draw(2, 6) : 1;
    p.n = draw(1, 3);
    p.c = p.groups * draw(1, 40);
    p.k = p.groups * draw(1, 40);
    p.h = draw(1, 24);
    p.w = draw(1, 24);
    p.r = draw(1, 5);
    p.s = draw(0, 1) == 0 ? p.r : draw(1, 5);
    p.stride_h = draw(0, 2) == 0 ? draw(1, 3) : 1;
    p.stride_w = draw(0, 2) == 0 ? draw(1, 3) : p.stride_h;
    p.dilation_h = draw(0, 3) == 0 ? draw(1, 3) : 1;
    p.dilation_w = draw(0, 3) == 0 ? draw(1, 3) : p.dilation_h;
    p.pad_h = draw(0, p.r);
    p.pad_w = draw(0, p.s);
    const std::int64_t special = draw(0, 7);
    if (special < 2) {  // splittable into halves of channels
      p.dtype = DType::f32;
      p.n = 2 * draw(1, 2);
      p.groups = p.r = p.s = p.dilation_h = p.dilation_w = 1;
      p.pad_h = p.pad_w = 0;
      p.c = 64 * draw(1, 2);
      p.k = 64 * draw(1, 2);
    } else if (special == 2) {  // depthwise
      p.groups = p.c = draw(2, 40);
      p.k = draw(0, 2) == 0 ? 2 * p.c : p.c;
      if (p.k == p.c && draw(0, 1) == 0) {  // as fft_tiled_depthwise requires
        p.r = p.s = draw(5, 9);
        p.pad_h = p.pad_w = p.r / 2;
        p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
      }
    } else if (special == 3) {  // small groups, several to a vector
      p.groups = draw(2, 12);
      p.c = p.k = p.groups << draw(1, 3);
      if (draw(0, 1) == 0) {  // as winograd_grouped requires
        p.dtype = DType::f32;
        p.pass = draw(0, 1) == 0 ? Pass::forward : Pass::backward_data;
        p.c = p.k = p.groups << draw(2, 3);
        p.r = p.s = 3;
        p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
      }
    } else if (special == 4) {  // a first layer
      p.groups = 1;
      p.c = draw(1, 4);
      if (draw(0, 1) == 0) {  // as winograd_1d requires
        p.dtype = DType::f32;
        p.pass = Pass::forward;
        p.r = p.s = 3;
        p.pad_h = p.pad_w = 1;
        p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
      }
    }
    const bool uneven = draw(0, 1) == 0;
    const std::int64_t below = uneven ? draw(0, p.r) : p.pad_h;
    const std::int64_t right = uneven ? draw(0, p.s) : p.pad_w;
    p.p = (p.h + p.pad_h + below - (p.r - 1) * p.dilation_h - 1) / p.stride_h + 1;
    p.q = (p.w + p.pad_w + right - (p.s - 1) * p.dilation_w - 1) / p.stride_w + 1;
    if (p.pass == Pass::forward && draw(0, 2) == 0)
      p.epilogue = {draw(0, 1) == 0, draw(0, 1) == 0,
                    draw(0, 1) == 0 ? ActivationKind::relu : ActivationKind::relu6};
    else
      p.accumulate = draw(0, 3) == 0;
    try {
      validate(p);
      if (p.flops() < 4e6) return p;
    } catch (const InputError&) {  // for example no output pixel
    }
  }
}

}  // namespace convlab
