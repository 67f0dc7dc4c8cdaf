"""Runs in a peer's environment, where this package is not installed: fit, predict, write the answer.

Usage: ``python peer_worker.py PEER given.npz answered.npz``. Rows have a norm of at most 1.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from typing import Any

# DP-SGD on the same linear model. Settings are fixed here for all data sets, and no data set was used to choose them.
EPOCHS, BATCH, RATE, CLIP = 10, 512, 0.5, 1.0
SETTINGS = {
    "diffprivlib": "its own default settings",
    "opacus": f"{EPOCHS} epochs, batches of {BATCH}, rate {RATE:g}, clipping at {CLIP:g} on every data set; a "
    "rate tuned on the data, unpaid, would do better",
}


def diffprivlib(given: Any) -> tuple[Any, float]:
    """diffprivlib's logistic regression (Chaudhuri et al. 2011): pure epsilon, its own defaults, norm 1 declared."""
    models = importlib.import_module("diffprivlib.models")
    model = models.LogisticRegression(epsilon=float(given["epsilon"]), data_norm=1.0)
    model.fit(given["X_train"], given["y_train"])
    return model.predict(given["X_test"]), float(given["epsilon"])


def opacus(given: Any) -> tuple[Any, float]:
    """Opacus: DP-SGD with Poisson batches on softmax regression; its accountant says what was spent."""
    torch = importlib.import_module("torch")
    engine = importlib.import_module("opacus").PrivacyEngine(accountant="prv", secure_mode=False)
    torch.set_num_threads(1)
    X = torch.tensor(given["X_train"], dtype=torch.float32)
    y = torch.tensor(given["y_train"], dtype=torch.long)
    model = torch.nn.Linear(X.shape[1], len(given["classes"]))
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    delta = float(given["delta"])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=BATCH)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        data_loader=loader,
        epochs=EPOCHS,
        target_epsilon=float(given["epsilon"]),
        target_delta=delta,
        max_grad_norm=CLIP,
    )
    loss = torch.nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for rows, labels in loader:
            optimizer.zero_grad()
            loss(model(rows), labels).backward()
            optimizer.step()
    with torch.no_grad():
        scores = model(torch.tensor(given["X_test"], dtype=torch.float32))
    return scores.argmax(dim=1).numpy(), float(engine.get_epsilon(delta))


def main(arguments: list[str]) -> None:
    """Fit the named peer."""
    np = importlib.import_module("numpy")
    name, source, target = arguments
    warnings.simplefilter("ignore")
    peers = {"diffprivlib": diffprivlib, "opacus": opacus}
    importlib.import_module(name)  # not part of the time of a fit
    with np.load(source) as file:
        given = dict(file)
    begin = time.perf_counter()
    predicted, epsilon = peers[name](given)
    seconds = time.perf_counter() - begin
    np.savez(target, predicted=predicted, seconds=seconds, epsilon=epsilon)


if __name__ == "__main__":
    main(sys.argv[1:])
