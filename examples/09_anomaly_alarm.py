"""How do a few films become an alarm?

Make a set of clips, train a detector, watch a film it has not seen, save a picture of the alarm.

python examples/09_anomaly_alarm.py
"""

from PIL import Image

import edgescope
from edgescope.wings.anomaly import verb as anomaly
from edgescope.wings.video.annotated import alarm_picture

# 1. A small set: clips of real films; in half of them the light goes down for a while. Only whole videos have labels.
made = anomaly.generate("videos", clips=24, kinds=("darkness",), size=(170, 128))
anomaly.extract("videos", "features", features="frames_lite0", backend="onnxruntime")
settings = {"steps": 300, "bags": 8, "learning_rate": 3e-3, "select": "last"}
anomaly.train("features", "detector.pt", head="light_head", **settings)


class Picture:
    """A sink of one's own: it keeps the newest frame, and draws it when an alarm is raised."""

    def __init__(self):
        self.frame, self.scores = None, []

    def frames(self, frames, times):
        """Take the frames of the next snippet."""
        self.frame = frames[-1].pixels

    def told(self, event):
        """Take an alarm that was raised or has ended."""
        if not event.alarm.over:
            self.raised = self.frame

    def file(self, event):
        """Return the file that belongs to an alarm."""
        return "alarm.png"

    def facts(self):
        """Return what the report says of this sink."""
        return {"picture": "alarm.png"}

    def close(self):
        """Do nothing: the picture is drawn at the end, when all scores are known."""


# 2. A film that was held out, watched as a camera would be: a new snippet of 16 frames after every 8.
film = [video for video in made.videos if video.split == "test" and video.intervals][-1]
sink, scores = Picture(), []
found = edgescope.watch(
    str(film.path),
    detector="detector.pt",
    backend="onnxruntime",
    rule="on=0.5,off=0.4",
    options={"decode": "full", "stride": 8},
    sinks=[sink],
    scored=scores.append,
    tell=print,
)
print(found)

# 3. The picture: the frame at the alarm, and the scores of the whole film below it.
start, end = (frame / 25 for frame in film.intervals[0])
print(f"planted from {start:.1f} s to {end:.1f} s")
if found.events:
    Image.fromarray(alarm_picture(sink.raised, scores, found.events[0].alarm, 0.5)).save("alarm.png")
    print("alarm.png")
