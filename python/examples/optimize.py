"""A PyTorch model, faster: python optimize.py [--budget 60s] [--train]

Takes torchvision's resnet18 if that is installed, else a small net.
"""

import argparse

import convlab
import torch


def small_net():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                         nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), 64


def resnet18():
    import torchvision

    return torchvision.models.resnet18(), 224


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", help="how long to tune: 60s")
    parser.add_argument("--small", action="store_true", help="a small net, also if torchvision is there")
    parser.add_argument("--train", action="store_true")
    options = parser.parse_args()
    try:
        model, size = small_net() if options.small else resnet18()
    except ImportError:
        model, size = small_net()
    x = torch.randn(2, 3, size, size)

    if options.train:
        model = convlab.torch.optimize(model, x, training=True, budget=options.budget)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 2]))
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item():.4f}")
        return
    with torch.no_grad():
        expected = model.eval()(x)
    model = convlab.torch.optimize(model, x, budget=options.budget)
    with torch.no_grad():
        y = model(x)
    print(f"the outputs differ by {float((y - expected).norm() / expected.norm()):.1e}")


if __name__ == "__main__":
    main()
