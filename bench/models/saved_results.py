"""Results that are measured once and saved in a file, so that a study can resume, here or on another machine."""

import hashlib
import json
import subprocess
from pathlib import Path

import torch
from verdicts import judge

from isentrope._core.files import write_text
from isentrope.commands.doctor import processor_name


class StudyError(Exception):
    pass


def saved(file, measure):
    """Returns the saved result of `measure`, calling it if there is none."""
    if not file.exists():
        write_text(file, json.dumps(measure()))
    return json.loads(file.read_text())


def fingerprint(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def program():
    """Returns the commit of this folder and the processor."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    return {"commit": commit, "cpu": processor_name(), "instruction_set": torch.backends.cpu.get_cpu_capability()}


class Record:
    """The published file: readings of each model, stretch by stretch, and the verdicts on complete models."""

    def __init__(self, file, protocol, documents):
        self.file, self.protocol = file, protocol
        self.documents = {document.stem: fingerprint(document) for document in sorted((documents / "test").glob("*.txt"))}
        saved = json.loads(file.read_text()) if file.exists() else {}
        self.models = saved.get("models", {})
        if self.models and saved["documents"] != self.documents:
            raise StudyError(f"{documents} must hold the documents that {file} was read from")

    def begin(self, name, weights):
        model = self.models.setdefault(
            name, {"what": self.protocol["models"][name]["what"], "weights": weights, "stretches": {}}
        )
        if model["weights"] != weights:
            raise StudyError(f"{name} must have the weights that {self.file} was read from, {model['weights']}; got {weights}")

    def is_whole(self, name):
        return "tuning" in self.models.get(name, {})

    def add_stretch(self, name, stretch, measure):
        stretches = self.models[name]["stretches"]
        if str(stretch) not in stretches:
            stretches[str(stretch)] = {"program": program()} | measure()
            self.write()

    def add_tuning(self, name, measure):
        self.models[name]["tuning"] = measure()
        self.write()

    def write(self):
        ordered = {name: self.models[name] for name in self.protocol["models"] if name in self.models}
        judge({name: model for name, model in ordered.items() if self.is_whole(name)}, self.protocol)
        result = {"kind": "calibration across models", "version": 2, "margin": self.protocol["margin"]}
        result |= {"documents": self.documents, "models": ordered}
        write_text(self.file, json.dumps(result, separators=(",", ":")) + "\n")
