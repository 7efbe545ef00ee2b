// The nets by name. ImageNet nets have 1000 classes at 224x224 (OverFeat 231x231, Inception v3
// 299x299), CIFAR ones 10 at 32x32; all end with the class scores, before the softmax.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nets/graph.h"

namespace convlab::nets {

// In the order shown to users; "mlp:20-256x5-1" and "rnn:28-128x2-10:lstm" stand for their whole
// families.
const std::vector<std::string>& net_names();

// With `classes` outputs instead of its own (0: its own). The graph is then named "resnet18:7",
// which is also a valid `name`, so that a plan for another number of classes is for another net. A
// perceptron's and a recurrent net's name already includes its outputs. Throws InputError naming
// the nearest name(s) for an unknown net, for a name that says another number than `classes`, or
// for a batch < 1.
Graph make_net(std::string_view name, std::int64_t batch, std::int64_t classes = 0);

// ---- One function per family, each in a file of its own ----

Graph alexnet(std::int64_t batch);
Graph alexnet2012(std::int64_t batch);
Graph overfeat(std::int64_t batch);
Graph vgg(int depth, bool batch_norm, std::int64_t batch);  // depth 11, 13, 16, 19
Graph googlenet(std::int64_t batch);
Graph googlenet2014(std::int64_t batch);
Graph resnet(int depth, std::int64_t batch);  // 18, 34, 50, 101, 152
Graph resnext50_32x4d(std::int64_t batch);
Graph squeezenet1_1(std::int64_t batch);
Graph mobilenet_v2(std::int64_t batch);
Graph mobilenet_v3_large(std::int64_t batch);
Graph densenet121(std::int64_t batch);
Graph efficientnet_b0(std::int64_t batch);
Graph regnet_y_400mf(std::int64_t batch);
Graph inception_v3(std::int64_t batch);
Graph shufflenet_v2_x1_0(std::int64_t batch);
Graph convnext_tiny(std::int64_t batch);
Graph deeplabv3_resnet50(std::int64_t batch);  // scores for each pixel of 224x224, of 21 classes
Graph unet(std::int64_t batch);                // of 256x256, of 2 classes
Graph r3d_18(std::int64_t batch);              // 400 classes of clips, 16 frames of 112x112
Graph unet3d(std::int64_t batch);              // scores for each voxel of 64x64x64, of 3 classes
Graph cifar_resnet(int depth, std::int64_t batch);  // 6 n + 2
Graph lenet(std::int64_t batch);
// "mlp:20-256x5-1": 20 inputs, 5 hidden layers of 256, 1 output. More hidden parts may follow
// ("mlp:784-512-256x2-10"). ":relu", ":sigmoid" or ":tanh" (the default) at the end names the
// activation between them.
Graph mlp(std::string_view name, std::int64_t batch);
// "rnn:28-128x2-10:lstm": sequences of 28 inputs a step, 2 recurrent layers of 128, and 10 outputs
// of a fully connected layer on the last layer's states after the last step. There are as many
// steps as inputs, so that an image's rows are a sequence; "28x50" at the beginning makes it 50
// steps.
// ":tanh" (the default), ":relu", ":gru" or ":lstm" at the end names the cell, and ":bi" behind it
// makes the layers bidirectional. The input is N 1 STEPS INPUTS.
Graph rnn(std::string_view name, std::int64_t batch);

}  // namespace convlab::nets
