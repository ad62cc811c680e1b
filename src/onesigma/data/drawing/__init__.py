"""How generated scenes are drawn; `onesigma.data.Scenes` is the way in."""
